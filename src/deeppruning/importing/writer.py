"""The nodes and weights of an ONNX file that is being written, and the names in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.importing.network import OnnxNetwork, RunStep

ALIKE = 256  # elements from which equal weights are written once


class Writer:
    """The nodes and weights of a file, collected while an example runs through its network."""

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

    def alias(self, source: str, name: str) -> None:
        """Another name for a value; an output of the file must be given by a node."""
        if name in self.network.output_names:
            self.node("Identity", [source], [name])
        else:
            self.aliases[name] = source

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
        kind = next((name for name in step.types if name.startswith(("float", "bfloat"))), "")
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

    def empty(self, names: Sequence[str]) -> set[str]:
        """Those of some values that have lost all their channels."""
        values = {name: self.values[name] for name in names if name in self.values}
        return {name for name, value in values.items() if isinstance(value, Tensor) and value.numel() == 0}
