"""Nodes whose sizes follow the tensors, written with the sizes of today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from deeppruning.importing.modules import Expand, Pieces, Reshape, Split
from deeppruning.importing.network import RunStep
from deeppruning.importing.sizes import Part
from deeppruning.importing.writer import Writer

SPLIT_AS_INPUT = 13  # opset from which the sizes of a split are an input


def write_sizes(
    writer: Writer, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """A node whose sizes follow the tensors, with the sizes of today where the file has them written down."""
    value = writer.values[step.inputs[0]]
    if isinstance(module, Reshape):
        shape = _shape_of_reshape(writer, module, step, inputs[0], outputs[0])
        writer.copy(step, [inputs[0], shape], outputs, allowzero=None)
    elif isinstance(module, Expand):
        shape = writer.whole([max(1, size) for size in module.sizes], f"{outputs[0]}_shape")
        writer.copy(step, [inputs[0], shape], outputs)
    elif isinstance(module, Pieces):
        width = value.shape[module.axis] // module.of
        ends = {"starts": [module.first * width], "ends": [module.end * width], "axes": [module.axis]}
        if "starts" in step.node.attributes:
            writer.copy(step, inputs[:1], outputs, **ends)
        else:
            names = [writer.whole(numbers, f"{outputs[0]}_{name}") for name, numbers in ends.items()]
            writer.copy(step, [inputs[0], *names], outputs)
    elif isinstance(module, Split):
        sizes = [piece.shape[module.axis] for piece in module(value)]
        written = "split" in step.node.attributes or len(step.node.inputs) > 1
        if not written and len(set(sizes)) == 1:
            writer.copy(step, inputs[:1], outputs)
        elif writer.opset < SPLIT_AS_INPUT:
            writer.copy(step, inputs[:1], outputs, split=sizes)
        else:
            names = [inputs[0], writer.whole(sizes, f"{outputs[0]}_sizes")]
            writer.copy(step, names, outputs, num_outputs=None)


def _shape_of_reshape(writer: Writer, module: Reshape, step: RunStep, source: str, name: str) -> str:
    """The name of the sizes: numbers where these suffice, else computed from those of the input."""
    value = writer.values[step.inputs[0]]
    written: Mapping[int, int] = dict(enumerate(module.written or ()))
    sizes: list[int] = []
    for place, part in enumerate(module.parts):
        if written.get(place) in (0, -1):
            sizes.append(written[place])
        elif written or part.first == part.end:
            sizes.append(int(part.of(value.shape)))
        elif part == Part(place, place + 1):
            sizes.append(0)  # as the input has it there
        else:
            sizes.append(-1)
    if sizes.count(-1) <= 1:
        return writer.whole(sizes, f"{name}_shape")
    shape = writer.node("Shape", [source], [writer.name(f"{name}_input_shape")])
    parts = [
        _computed(writer, shape, part, f"{name}_size_{place}") for place, part in enumerate(module.parts)
    ]
    return writer.node("Concat", parts, [writer.name(f"{name}_shape")], axis=0)


def _computed(writer: Writer, shape: str, part: Part, hint: str) -> str:
    """One size out of those of the input."""
    if part.first == part.end:
        return writer.whole([part.divisor], hint)
    places = writer.whole(list(range(part.first, part.end)), f"{hint}_axes")
    size = writer.node("Gather", [shape, places], [writer.name(f"{hint}_gathered")], axis=0)
    if part.end - part.first > 1:
        size = writer.node("ReduceProd", [size], [writer.name(f"{hint}_product")], keepdims=1)
    if part.divisor == 1:
        return size
    return writer.node("Div", [size, writer.whole([part.divisor], f"{hint}_by")], [writer.name(hint)])
