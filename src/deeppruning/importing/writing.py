"""A network that came from an ONNX file as such a file again: its own nodes, with the weights of today.

Nodes, names, free axes, opset and metadata are those of the file that was read; weights come from the layers,
and sizes that the file had written down are those of the tensors now. What a cut has put between the layers
(stand-ins for removed ones, channels that are picked) is written as nodes of ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.deploying.onnx_graph import require
from deeppruning.deploying.steps import Fixed
from deeppruning.errors import GraphError
from deeppruning.graph.cut.hollow import Answer, Reindexed
from deeppruning.importing.modules import AverageInside, Expand, Operation, Pieces, Reshape, Split, layer_of
from deeppruning.importing.network import OnnxNetwork, RunStep
from deeppruning.importing.writer import Writer
from deeppruning.importing.writing_gone import write_answer, write_gone
from deeppruning.importing.writing_layers import write_layer
from deeppruning.importing.writing_sizes import write_sizes

COPIED = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, AverageInside,
)  # fmt: skip
PADS_AS_INPUT = 11  # opset from which padding is an input


def to_onnx(network: OnnxNetwork) -> bytes:
    """The network as the content of an ONNX file; GraphError if something in it is not known here."""
    onnx = require("onnx")
    writer = _NetworkWriter(onnx, network)
    with torch.no_grad():
        writer.write()
    model = onnx.ModelProto.FromString(network.wiring.header.model)
    graph = onnx.GraphProto.FromString(network.wiring.header.graph)
    graph.node.extend(_needed(writer.nodes, set(network.output_names)))
    used = {name for node in graph.node for name in node.input}
    graph.initializer.extend(tensor for tensor in writer.initializers if tensor.name in used)
    model.graph.CopyFrom(graph)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _needed(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    """The ONNX nodes that the outputs depend on."""
    needed_nodes = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            needed_nodes.append(node)
    return needed_nodes[::-1]


class _NetworkWriter(Writer):
    """Writes a network step by step."""

    def write(self) -> None:
        """All steps, in order."""
        network = self.network
        for name, value in network.given.items():
            self.node("Identity", [self.constant(value.numpy(), f"{name}_constant")], [name])
        for step in network.wiring.steps:
            network.run_step(step, self.values)
            module = network._modules[step.module]
            assert module is not None
            inputs = [self.aliases.get(name, name) for name in step.inputs]
            if self.empty(step.outputs).issuperset(name for name in step.outputs if name in self.values):
                write_gone(self, step, inputs)
            else:
                self.module(module, step, inputs, step.outputs)
            for name in step.last_use_of:
                del self.values[name]

    def module(self, module: nn.Module, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """One module as nodes that take and give values of these names."""
        module = layer_of(module)  # the node has the padding among its attributes
        if isinstance(module, Reindexed):
            self._reindexed(module, step, inputs, outputs)
        elif isinstance(module, (nn.Identity, nn.Dropout)):
            self.alias(inputs[0], outputs[0])
        elif isinstance(module, Fixed):
            self.alias(self.weight(module.value, step, "value"), outputs[0])
        elif isinstance(module, Answer):
            write_answer(self, module, step, inputs, outputs[0])
        elif isinstance(module, Operation):
            self._operation(module, step, inputs, outputs)
        elif isinstance(module, COPIED):
            self.copy(step, inputs, outputs)
        elif isinstance(module, (Reshape, Split, Pieces, Expand)):
            write_sizes(self, module, step, inputs, outputs)
        else:
            write_layer(self, module, step, inputs, outputs)

    def _operation(
        self, module: Operation, step: RunStep, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """A node with its constants; tensors without channels are left out of a concatenation."""
        rest = iter(inputs)
        names: list[str] = []
        empty = self.empty(step.inputs)
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
            self.alias(names[0], outputs[0])
            return
        while names and names[-1] == "":
            names.pop()
        self.copy(step, names, outputs)

    def _constant_of(self, module: Operation, step: RunStep, place: int) -> str:
        """The name of a constant input, written as an initializer."""
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
        """A Gather of the channels that stay."""
        indices = self.constant(places.cpu().numpy(), f"{name}_channels")
        return self.node("Gather", [source, indices], [name], axis=1)
