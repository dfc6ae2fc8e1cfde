"""Layers with weights as ONNX nodes, with the weights of today."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.importing.network import RunStep
from deeppruning.importing.writer import Writer

CHANNEL_SCALES = 21  # opset from which a group norm has a scale a channel


def write_layer(
    writer: Writer, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """A layer with weights."""
    if writer.empty(step.inputs):
        raise GraphError(f"{step.node.name!r} ({step.node.op}) reads a tensor without channels")

    def weights(*names: str) -> list[str]:
        tensors = {name: getattr(module, name) for name in names}
        return [writer.weight(tensor, step, name) for name, tensor in tensors.items() if tensor is not None]

    if isinstance(module, nn.modules.conv._ConvNd):
        writer.copy(step, [inputs[0], *weights("weight", "bias")], outputs, group=module.groups)
    elif isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)):
        moments = () if step.node.op == "InstanceNormalization" else ("running_mean", "running_var")
        writer.copy(step, [inputs[0], *weights("weight", "bias", *moments)], outputs[:1])
    elif isinstance(module, nn.LayerNorm):
        writer.copy(step, [inputs[0], *weights("weight", "bias")], outputs[:1])
    elif isinstance(module, nn.PReLU):
        rank = writer.values[step.inputs[0]].dim()
        slope = module.weight.reshape([-1] + [1] * (rank - 2)) if module.weight.numel() > 1 else module.weight
        writer.copy(step, [inputs[0], writer.weight(slope, step, "weight")], outputs)
    elif isinstance(module, nn.Linear):
        _write_linear(writer, module, step, inputs[0], outputs[0])
    elif isinstance(module, nn.GroupNorm):
        _write_group_norm(writer, module, step, inputs[0], outputs[0])
    else:
        raise GraphError(
            f"{step.module} is a {type(module).__name__}, which is not written as {step.node.op}"
        )


def _write_linear(writer: Writer, module: nn.Linear, step: RunStep, source: str, name: str) -> None:
    """A linear layer as Gemm, or as MatMul and Add."""
    if step.node.op == "Gemm":
        names = [source, writer.weight(module.weight, step, "weight")]
        names += [] if module.bias is None else [writer.weight(module.bias, step, "bias")]
        writer.copy(step, names, [name], alpha=1.0, beta=1.0, transA=0, transB=1)
        return
    product = name if module.bias is None else writer.name(f"{name}_product")
    writer.copy(step, [source, writer.weight(module.weight.T, step, "weight")], [product])
    if module.bias is not None:
        writer.node("Add", [product, writer.weight(module.bias, step, "bias")], [name])


def _write_group_norm(writer: Writer, module: nn.GroupNorm, step: RunStep, source: str, name: str) -> None:
    """A group norm; before opset 21, whose scales are one per group, with nodes for scale and bias."""
    if writer.opset >= CHANNEL_SCALES:
        names = [
            source,
            writer.weight(module.weight, step, "weight"),
            writer.weight(module.bias, step, "bias"),
        ]
        writer.copy(step, names, [name], num_groups=module.num_groups)
        return
    rank = writer.values[step.inputs[0]].dim()
    scale, bias = (weight.reshape([-1] + [1] * (rank - 2)) for weight in (module.weight, module.bias))
    even = [writer.weight(torch.full((module.num_groups,), number), step, "even") for number in (1.0, 0.0)]
    plain, scaled = writer.name(f"{name}_plain"), writer.name(f"{name}_scaled")
    writer.copy(step, [source, *even], [plain], num_groups=module.num_groups)
    writer.node("Mul", [plain, writer.weight(scale, step, "weight")], [scaled])
    writer.node("Add", [scaled, writer.weight(bias, step, "bias")], [name])
