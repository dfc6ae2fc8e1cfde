"""A network that came from an ONNX file as such a file again: its own nodes, with the weights of today.

Nodes, names, free axes, opset and metadata are those of the file that was read; weights come from the layers,
and sizes that the file had written down are those of the tensors now. What a cut has put between the layers
(stand-ins for removed ones, channels that are picked) is written as nodes of ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.deploying.onnx_graph import require
from deeppruning.deploying.steps import Fixed
from deeppruning.errors import GraphError
from deeppruning.graph.cut.hollow import Reindexed
from deeppruning.importing.modules import Expand, Operation, Padding, Pieces, Reshape, Split
from deeppruning.importing.network import OnnxNetwork, RunStep
from deeppruning.importing.sizes import Part

COPIED = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
)  # fmt: skip
ALIKE = 256  # elements from which equal weights are written once
CHANNEL_SCALES = 21  # opset from which a group norm has a scale a channel
PADS_AS_INPUT = 11  # opset from which padding is an input
SPLIT_AS_INPUT = 13


def to_onnx(network: OnnxNetwork) -> bytes:
    """The network as the content of an ONNX file; GraphError if something in it is not known here."""
    onnx = require("onnx")
    writer = _Writer(onnx, network)
    with torch.no_grad():
        writer.write()
    model = onnx.ModelProto.FromString(network.wiring.header.model)
    graph = onnx.GraphProto.FromString(network.wiring.header.graph)
    graph.node.extend(_needed(writer.nodes, set(network.output_names)))
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(one for one in writer.initializers if one.name in used)
    model.graph.CopyFrom(graph)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _needed(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


class _Writer:
    """The nodes and weights of a file, collected while an example runs through the network."""

    def __init__(self, onnx: Any, network: OnnxNetwork) -> None:
        self.onnx, self.network = onnx, network
        self.opset = network.wiring.header.opset
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.aliases: dict[str, str] = {}
        self.alike: dict[Any, str] = {}
        self.taken = {name for step in network.wiring.steps for name in (*step.inputs, *step.outputs)}
        self.taken |= {*network.input_names, *network.output_names}
        self.values = network.named_inputs(**network.example_inputs())

    def write(self) -> None:
        """All steps, in order."""
        network = self.network
        for name, value in network.given.items():
            self.node("Identity", [self.constant(value.numpy(), f"{name}_constant")], [name])
        for step in network.wiring.steps:
            network.run_step(step, self.values)
            module = network._modules[step.module]
            assert module is not None
            made = [self.values[name] for name in step.outputs if name in self.values]
            if any(isinstance(one, Tensor) and one.numel() == 0 for one in made):
                continue  # no channels are left of it; whoever reads it leaves it out
            self.module(module, step, [self.aliases.get(name, name) for name in step.inputs], step.outputs)
            for name in step.last_use_of:
                del self.values[name]

    def module(self, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """One module as nodes that take and give values of these names."""
        if isinstance(module, nn.Sequential) and isinstance(module[0], Padding):
            module = module[-1]  # the node has the padding among its attributes
        if isinstance(module, Reindexed):
            self._reindexed(module, step, inputs, outputs)
        elif isinstance(module, (nn.Identity, nn.Dropout)):
            self._alias(inputs[0], outputs[0])
        elif isinstance(module, Fixed):
            self._fixed(module.value, step, outputs[0])
        elif isinstance(module, Operation):
            self._operation(module, step, inputs, outputs)
        elif isinstance(module, COPIED):
            self.copy(step, inputs, outputs)
        elif isinstance(module, (Reshape, Split, Pieces, Expand)):
            write_sizes(self, module, step, inputs, outputs)
        else:
            write_layer(self, module, step, inputs, outputs)

    def name(self, hint: str) -> str:
        """A name that no other value has."""
        name, number = hint, 1
        while name in self.taken:
            name, number = f"{hint}_{number}", number + 1
        self.taken.add(name)
        return name

    def constant(self, array: NDArray[Any], hint: str, kind: str = "") -> str:
        """The name of an initializer that holds an array, in the file's type; equal large ones are one."""
        # Not ascontiguousarray, which gives a number an axis.
        array = np.array(array.astype(kind) if kind and array.dtype.kind == "f" else array, order="C")
        key = (array.dtype.name, array.shape, array.tobytes()) if array.size >= ALIKE else object()
        if key not in self.alike:
            self.alike[key] = self.name(hint)
            self.initializers.append(self.onnx.numpy_helper.from_array(array, self.alike[key]))
        return self.alike[key]

    def weight(self, tensor: Tensor, step: RunStep, hint: str) -> str:
        """A learnt tensor, in the type that the node's weights have in the file."""
        kind = next((one for one in step.types if one.startswith(("float", "bfloat"))), "")
        return self.constant(tensor.detach().cpu().numpy(), f"{step.module}.{hint}", kind)

    def whole(self, numbers: Sequence[int], hint: str) -> str:
        """Sizes or positions."""
        return self.constant(np.array(numbers, np.int64), hint)

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        """A node of our own; returns the name of its first output."""
        name = self.name(f"{outputs[0]}/{op}")
        self.nodes.append(self.onnx.helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def copy(self, step: RunStep, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """The node of the file with other inputs, outputs and, where given, attributes; None removes one."""
        node = self.onnx.NodeProto.FromString(step.node.proto)
        del node.input[:]
        node.input.extend(inputs)
        rest = list(step.node.outputs)[len(outputs) :]
        del node.output[:]
        node.output.extend([*outputs, *("" for _ in rest)] if any(outputs[1:]) else outputs)
        for place in reversed(range(len(node.attribute))):
            if node.attribute[place].name in attributes:
                del node.attribute[place]
        given = {name: value for name, value in attributes.items() if value is not None}
        node.attribute.extend(self.onnx.helper.make_attribute(name, value) for name, value in given.items())
        self.nodes.append(node)

    def _alias(self, source: str, name: str) -> None:
        if name in self.network.output_names:
            self.node("Identity", [source], [name])
        else:
            self.aliases[name] = source

    def _fixed(self, value: Tensor, step: RunStep, name: str) -> None:
        made = self.weight(value, step, "value")
        self._alias(made, name)

    def _operation(
        self, module: Operation, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """A node with its constants; tensors without channels are left out of a concatenation."""
        rest = iter(inputs)
        names: list[str] = []
        empty = self.empty(step)
        for place, original in enumerate(step.node.inputs):
            if place in module.places:
                names.append(self._constant_of(module, step, place))
                continue
            name = next(rest)
            if original in empty:
                if step.node.op != "Concat":
                    raise GraphError(f"{step.node.name!r} ({step.node.op}) reads a tensor without channels")
                continue
            names.append(name)
        if step.node.op == "Concat" and len(names) == 1:
            self._alias(names[0], outputs[0])
            return
        while names and names[-1] == "":
            names.pop()
        self.copy(step, names, outputs)

    def empty(self, step: RunStep) -> set[str]:
        """The inputs of a step that have lost all their channels."""
        values = {name: self.values[name] for name in step.inputs}
        return {name for name, one in values.items() if isinstance(one, Tensor) and one.numel() == 0}

    def _constant_of(self, module: Operation, step: RunStep, place: int) -> str:
        if place in module.fixed and module.fixed[place] is None:
            return ""
        value = module.fixed[place] if place in module.fixed else getattr(module, f"constant_{place}")
        kind, shape = step.types[place], step.shapes[place]
        if isinstance(value, Tensor):
            array = value.detach().cpu().numpy()
        else:
            array = np.asarray(value).astype(kind).reshape(shape)
            if step.node.op == "Resize" and array.dtype.kind == "i":
                array = self._sizes_of_resize(array, step)
        return self.constant(array.astype(kind), f"{step.module}.{step.node.inputs[place]}", kind)

    def _sizes_of_resize(self, sizes: NDArray[Any], step: RunStep) -> NDArray[Any]:
        """Written sizes of all axes, with the channels that are there now."""
        value = self.values[step.inputs[0]]
        if sizes.size != value.dim():
            return sizes
        return np.concatenate([[sizes[0], value.shape[1]], sizes[2:]])

    def _reindexed(
        self, module: Reindexed, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Channels spread to their full number, the node as it was, then those that stay."""
        source, rank = inputs[0], self.values[step.inputs[0]].dim()
        if not module.full_in:
            pads = [0] * rank + [0, 1] + [0] * (rank - 2)
            padded = self.name(f"{outputs[0]}_padded")
            if self.opset < PADS_AS_INPUT:
                self.node("Pad", [source], [padded], pads=pads)
            else:
                self.node("Pad", [source, self.whole(pads, f"{padded}_pads")], [padded])
            source = self._picked(padded, module.spread, self.name(f"{outputs[0]}_spread"))
        full = self.name(f"{outputs[0]}_full")
        thin = self.values[step.inputs[0]]
        # The node inside runs on all channels, and its sizes are those of all.
        self.values[step.inputs[0]] = thin.new_zeros([thin.shape[0], len(module.spread), *thin.shape[2:]])
        self.module(module.inner, step, [source, *inputs[1:]], [full])
        self.values[step.inputs[0]] = thin
        self._picked(full, module.pick, outputs[0])

    def _picked(self, source: str, places: Tensor, name: str) -> str:
        indices = self.constant(places.cpu().numpy(), f"{name}_channels")
        return self.node("Gather", [source, indices], [name], axis=1)


def write_layer(
    writer: _Writer, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """A layer with weights."""
    if writer.empty(step):
        raise GraphError(f"{step.node.name!r} ({step.node.op}) reads a tensor without channels")

    def weights(*names: str) -> list[str]:
        tensors = {name: getattr(module, name) for name in names}
        return [writer.weight(tensor, step, name) for name, tensor in tensors.items() if tensor is not None]

    if isinstance(module, nn.modules.conv._ConvNd):
        writer.copy(step, [inputs[0], *weights("weight", "bias")], outputs, group=module.groups)
    elif isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)):
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


def _write_linear(writer: _Writer, module: nn.Linear, step: RunStep, source: str, name: str) -> None:
    if step.node.op == "Gemm":
        names = [source, writer.weight(module.weight, step, "weight")]
        names += [] if module.bias is None else [writer.weight(module.bias, step, "bias")]
        writer.copy(step, names, [name], alpha=1.0, beta=1.0, transA=0, transB=1)
        return
    product = name if module.bias is None else writer.name(f"{name}_product")
    writer.copy(step, [source, writer.weight(module.weight.T, step, "weight")], [product])
    if module.bias is not None:
        writer.node("Add", [product, writer.weight(module.bias, step, "bias")], [name])


def _write_group_norm(writer: _Writer, module: nn.GroupNorm, step: RunStep, source: str, name: str) -> None:
    if writer.opset >= CHANNEL_SCALES:
        names = [
            source,
            writer.weight(module.weight, step, "weight"),
            writer.weight(module.bias, step, "bias"),
        ]
        writer.copy(step, names, [name], num_groups=module.num_groups)
        return
    rank = writer.values[step.inputs[0]].dim()
    scale, bias = (one.reshape([-1] + [1] * (rank - 2)) for one in (module.weight, module.bias))
    even = [writer.weight(torch.full((module.num_groups,), one), step, "even") for one in (1.0, 0.0)]
    plain, scaled = writer.name(f"{name}_plain"), writer.name(f"{name}_scaled")
    writer.copy(step, [source, *even], [plain], num_groups=module.num_groups)
    writer.node("Mul", [plain, writer.weight(scale, step, "weight")], [scaled])
    writer.node("Add", [scaled, writer.weight(bias, step, "bias")], [name])


def write_sizes(
    writer: _Writer, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
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
        sizes = [one.shape[module.axis] for one in module(value)]
        written = "split" in step.node.attributes or len(step.node.inputs) > 1
        if not written and len(set(sizes)) == 1:
            writer.copy(step, inputs[:1], outputs)
        elif writer.opset < SPLIT_AS_INPUT:
            writer.copy(step, inputs[:1], outputs, split=sizes)
        else:
            names = [inputs[0], writer.whole(sizes, f"{outputs[0]}_sizes")]
            writer.copy(step, names, outputs, num_outputs=None)


def _shape_of_reshape(writer: _Writer, module: Reshape, step: RunStep, source: str, name: str) -> str:
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


def _computed(writer: _Writer, shape: str, part: Part, hint: str) -> str:
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
