"""What a cut has removed as ONNX nodes: layers without outputs, and layers that have lost all their inputs.

ONNX has no tensors without channels. One that has lost all of them is written as a single channel, of
whatever values, that only says how large the maps are: what reads it is a layer without inputs, whose answer
is its bias in maps of that size. Nodes that nothing needs in the end are not written at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deeppruning.errors import GraphError
from deeppruning.graph.cut.hollow import Answer
from deeppruning.importing.network import RunStep
from deeppruning.importing.writer import Writer

WINDOWS = ("MaxPool", "AveragePool", "GlobalAveragePool")
MAPS = (*WINDOWS, "Conv", "ConvTranspose", "Gemm", "MatMul")


def write_gone(writer: Writer, step: RunStep, inputs: Sequence[str]) -> None:
    """The single channel in place of a step's results, which have none."""
    for name in step.outputs:
        if name not in writer.values:
            continue
        like = [
            source
            for original, source in zip(step.inputs, inputs, strict=True)
            if _shape(writer, original) == _shape(writer, name)
        ]
        if like:
            writer.aliases[name] = like[0]  # an activation, a norm: the same maps
        elif step.node.op in MAPS:
            writer.aliases[name] = _map_of(writer, step, inputs)


def write_answer(writer: Writer, module: Answer, step: RunStep, inputs: Sequence[str], name: str) -> None:
    """The output of a layer without inputs: its bias, at every position where that is needed."""
    rank = writer.values[name].dim()
    last = module.channels_last
    bias = module.bias if last else module.bias.reshape([-1] + [1] * (rank - 2))
    constant = writer.weight(bias, step, "bias")
    if module.spread:
        writer.node("Add", [_map_of(writer, step, inputs), constant], [name])
    else:
        writer.alias(constant, name)


def _map_of(writer: Writer, step: RunStep, inputs: Sequence[str]) -> str:
    """A single channel of the size that a layer gives, by the layer itself with a filter of zeros."""
    op, source, value = step.node.op, inputs[0], writer.values[step.inputs[0]]
    gone = value.numel() == 0
    if gone and source == step.inputs[0]:
        raise GraphError(f"{step.node.name!r} ({op}) reads a tensor without channels")
    name = writer.name(f"{step.outputs[0]}_map")

    def zeros(*shape: int) -> str:
        return writer.weight(torch.zeros(shape), step, "none")

    if op in WINDOWS:
        writer.copy(step, [source], [name])
    elif op in ("Gemm", "MatMul"):
        writer.node("MatMul", [source, zeros(1 if gone else value.shape[-1], 1)], [name])
    elif op in ("Conv", "ConvTranspose"):
        width, kernel = 1 if gone else value.shape[1], step.shapes[1][2:]
        filters = zeros(1, width, *kernel) if op == "Conv" else zeros(width, 1, *kernel)
        writer.copy(step, [source, filters], [name], group=1)
    else:
        writer.node("Mul", [source, zeros(*[1] * value.dim())], [name])
    return name


def _shape(writer: Writer, name: str) -> list[int] | None:
    """The shape of an ONNX value on the example, if it is a tensor."""
    value = writer.values.get(name)
    return list(value.shape) if isinstance(value, Tensor) else None
