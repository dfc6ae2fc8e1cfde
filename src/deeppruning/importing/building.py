"""From an ONNX file to its network, built node by node while an example runs through it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.importing.file import HALF_NAMES, OnnxFile, OnnxNode
from deeppruning.importing.layers import BUILDERS, SIZES
from deeppruning.importing.modules import Operation, layer_of
from deeppruning.importing.network import OnnxNetwork, RunStep, Wiring
from deeppruning.importing.operations import HOST, OPERATIONS, run
from deeppruning.importing.values import as_tensor

SUPPORTED = {*BUILDERS, *OPERATIONS, *HOST, "Constant", "DequantizeLinear"}
MOST_ON_HOST = 64  # integers: sizes and positions, not data
HALF_CODES = (10, 16)  # of these types in ONNX


def build(file: OnnxFile, examples: Mapping[str, Tensor], *, follow_sizes: bool = True) -> OnnxNetwork:
    """The network of a file, in evaluation mode; `examples` are inputs that run through it meanwhile.

    Unless `follow_sizes`, sizes that are written in the file stay as they are.
    """
    network = OnnxNetwork([value.name for value in file.inputs], [value.name for value in file.outputs])
    building = _Building(file, network, examples, follow_sizes=follow_sizes)
    with torch.no_grad():
        for node in file.nodes:
            try:
                building.add(node)
                building.forget(node)
            except InputError as error:
                named = repr(node.name) in str(error)
                where = "" if named else f"the node {node.name!r} ({node.op}) is not supported: "
                raise InputError(f"{file.path}: {where}{error}") from error
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                raise InputError(
                    f"{file.path}: the node {node.name!r} ({node.op}) cannot be rebuilt: {reason}"
                ) from error
    building.finish()
    return network.eval()


class _Building:
    """The network of a file while it is built."""

    def __init__(
        self, file: OnnxFile, network: OnnxNetwork, examples: Mapping[str, Tensor], *, follow_sizes: bool
    ) -> None:
        self.file = file
        self.builders = {op: build for op, build in BUILDERS.items() if follow_sizes or op not in SIZES}
        self.network = network
        self.example = tuple(
            (tuple(examples[name].shape), examples[name].dtype) for name in network.input_names
        )
        self.values = network.named_inputs(**examples)
        self.constants: dict[str, NDArray[Any]] = {}
        self.types: dict[str, str] = {}  # of constants, as they are in the file
        for name, array in file.constants.items():
            self._keep(name, array)
        self.steps: list[RunStep] = []
        self.users: dict[str, int] = {}
        for node in file.nodes:
            for name in node.inputs:
                self.users[name] = self.users.get(name, 0) + 1
        for value in file.outputs:
            self.users[value.name] = self.users.get(value.name, 0) + 1
        self.left = dict(self.users)  # of which the nodes so far are taken off

    def _keep(self, name: str, array: NDArray[Any], kind: str = "") -> None:
        """A constant; half precision is computed in single, as torch does not on every processor."""
        self.types[name] = kind or array.dtype.name
        self.constants[name] = array.astype(np.float32) if array.dtype.name in HALF_NAMES else array

    def add(self, node: OnnxNode) -> None:
        """One node: folded if all it takes is constant, else a module that runs at once on the example."""
        node = _modern(node, self.file.header.opset)
        if self._fold(node):
            return
        constants = [self.constants.get(name) for name in node.inputs]
        if node.inputs and all(name == "" or name in self.constants for name in node.inputs):
            self._fold_by_running(node, constants)
            return
        if self._is_bias(node, constants):
            return
        given = [
            None if name == "" else self.values.get(name, _host(constant))
            for name, constant in zip(node.inputs, constants, strict=True)
        ]
        builder = self.builders.get(node.op)
        module = None if builder is None else builder(node, given, constants)
        computed = tuple(name for name in node.inputs if name and name not in self.constants)
        if module is None:
            if node.op not in OPERATIONS and node.op not in HOST:
                raise InputError(
                    f"the node {node.name!r} ({node.op}) has weights that are computed, not supported"
                )
            module = Operation(node.op, node.attributes, _constant_inputs(node, constants))
        else:
            computed = computed[:1]
        module.eval()
        results = module(*(self.values[name] for name in computed))
        outputs = tuple(node.outputs)
        if isinstance(results, (tuple, list)):
            self.values.update(zip(outputs, results, strict=False))
        else:
            self.values[outputs[0]] = results
            outputs = outputs[:1]
        self.steps.append(RunStep(self._name(node, module), computed, outputs, node, *self._forms(node)))

    def _forms(self, node: OnnxNode) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
        """Types and shapes of a node's constant inputs, as the file has them."""
        types = tuple(self.types.get(name, "") for name in node.inputs)
        shapes = tuple(self.constants[name].shape if name in self.constants else () for name in node.inputs)
        return types, shapes

    def forget(self, node: OnnxNode) -> None:
        """Drop the values that no later node takes: all of a large network's would not fit into memory."""
        for name in node.inputs:
            self.left[name] -= 1
            if self.left[name] == 0:
                self.values.pop(name, None)

    def _fold(self, node: OnnxNode) -> bool:
        """Keep the value of a Constant or of a DequantizeLinear; whether the node was one of these."""
        if node.op == "Constant":
            self._keep(node.outputs[0], _constant(node))
            return True
        if node.op == "DequantizeLinear":
            self._keep(
                node.outputs[0], _dequantised(node, [self.constants.get(name) for name in node.inputs])
            )
            return True
        return False

    def _fold_by_running(self, node: OnnxNode, constants: Sequence[NDArray[Any] | None]) -> None:
        """Compute a node on constants by the operation it would become."""
        inputs = [
            None if array is None else _host(array) if _on_host(array) else torch.from_numpy(np.array(array))
            for array in constants
        ]
        if node.op in BUILDERS and node.op not in OPERATIONS and node.op not in HOST:
            tensors = [None if value is None else as_tensor(value) for value in inputs]
            module = BUILDERS[node.op](node, tensors, [None, *constants[1:]])
            assert module is not None
            results = module.eval()(tensors[0])
        else:
            results = run(node.op, inputs, node.attributes)
        for name, value in zip(
            node.outputs, results if isinstance(results, (tuple, list)) else [results], strict=False
        ):
            array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            whole = array.astype(np.int64) if array.dtype == object and _whole(array) else array
            self._keep(name, whole, self._half_type(node, whole))

    def _half_type(self, node: OnnxNode, result: NDArray[Any]) -> str:
        """The type that a folded result has in the file, where that is half precision; else empty."""
        if result.dtype != np.float32:
            return ""
        if node.op == "Cast":
            return "float16" if node.attributes["half"] else ""
        return next((self.types[name] for name in node.inputs if self.types.get(name) in HALF_NAMES), "")

    def _is_bias(self, node: OnnxNode, constants: Sequence[NDArray[Any] | None]) -> bool:
        """Whether a constant that is added to a layer's output became its bias."""
        if node.op != "Add" or sum(constant is not None for constant in constants) != 1 or not self.steps:
            return False
        source = next(name for name in node.inputs if name not in self.constants)
        array = next(constant for constant in constants if constant is not None)
        step = next((step for step in self.steps if source in step.outputs), None)
        if step is None or self.users.get(source, 0) != 1:
            return False
        layer = self.network._modules[step.module]
        layer = layer if layer is None else layer_of(layer)
        if not isinstance(layer, (nn.Linear, nn.modules.conv._ConvNd)) or layer.bias is not None:
            return False
        value, axis = self.values[source], -1 if isinstance(layer, nn.Linear) else 1
        shape = [1] * value.dim()
        shape[axis] = value.shape[axis]
        width = value.shape[axis]
        if array.size != width or tuple(array.shape) not in {
            tuple(shape),
            tuple(shape[1:]),
            (width,) if axis == -1 else (),
        }:
            return False
        layer.bias = nn.Parameter(torch.from_numpy(np.array(array).reshape(-1)))
        place = self.steps.index(step)
        outputs = tuple(node.outputs[0] if name == source else name for name in step.outputs)
        self.steps[place] = replace(step, outputs=outputs)
        self.values[node.outputs[0]] = value + layer.bias.reshape(shape)
        return True

    def _name(self, node: OnnxNode, module: nn.Module) -> str:
        """Add a module to the network under the name of its node, made unique."""
        name = re.sub(r"\W+", "_", node.name).strip("_") or node.op
        while hasattr(self.network, name):
            name += "_"
        self.network.add_module(name, module)
        return name

    def finish(self) -> None:
        """Keep the steps that outputs depend on, and say after which of them a value is not needed."""
        network = self.network
        for name in network.output_names:
            if name in self.constants:
                network.given[name] = torch.from_numpy(np.array(self.constants[name]))
            elif name not in self.values:
                raise InputError(f"{self.file.path}: nothing gives its output {name!r}; is it whole?")
        needed, needed_steps = set(network.output_names), []
        for step in reversed(self.steps):
            if needed.isdisjoint(step.outputs):
                del network._modules[step.module]
                continue
            last = tuple({*step.inputs, *step.outputs} - needed)
            needed.update(step.inputs)
            needed_steps.append(replace(step, last_use_of=last))
        network.wiring = Wiring(tuple(reversed(needed_steps)), self.file.header, self.example)


def _modern(node: OnnxNode, opset: int) -> OnnxNode:
    """A node as later opsets write it: some attributes are inputs there, and softmax has one axis."""
    attributes = dict(node.attributes)
    if node.op in ("Softmax", "LogSoftmax"):
        attributes["logarithm"] = node.op == "LogSoftmax"
        if opset < 13:
            attributes.setdefault("axis", 1)
            attributes["flat"] = True
    if node.op == "Pad" and "value" in attributes:
        attributes["number"] = attributes.pop("value")
    if node.op == "ArgMin":
        attributes["least"] = True
    if node.op == "Cast":
        attributes["half"] = attributes.get("to") in HALF_CODES
        attributes["to"] = 1 if attributes["half"] else attributes.get("to")
    for name, value in attributes.items():
        if isinstance(value, np.ndarray) and value.dtype.name in HALF_NAMES:
            attributes[name] = value.astype(np.float32)
    return replace(node, attributes=attributes)


def _constant(node: OnnxNode) -> NDArray[Any]:
    """The value of a Constant, which may be a tensor, a number or a list."""
    (name, value), *_ = node.attributes.items()
    if name not in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        raise InputError(f"the node {node.name!r} (Constant) holds a {name}, which is not supported")
    return np.asarray(value, np.float32 if "float" in name else np.int64 if "int" in name else None)


def _on_host(array: NDArray[Any]) -> bool:
    """Whether an array holds sizes, which stay Python numbers."""
    return bool(array.dtype.kind in "iub" and array.ndim <= 1 and array.size <= MOST_ON_HOST)


def _host(array: NDArray[Any] | None) -> Any:
    """An array of sizes as Python integers."""
    if array is None:
        return None
    return array.astype(object) if array.dtype.kind in "iu" else array


def _whole(array: NDArray[Any]) -> bool:
    """Whether an array holds whole numbers."""
    return all(isinstance(number, (int, np.integer)) for number in array.reshape(-1))


def _constant_inputs(node: OnnxNode, constants: Sequence[NDArray[Any] | None]) -> dict[int, Any]:
    """The inputs of an operation that are constant: numbers, host values, or tensors to be kept with it."""
    inputs: dict[int, Any] = {}
    for place, (name, array) in enumerate(zip(node.inputs, constants, strict=True)):
        if name == "":
            inputs[place] = None
        elif array is not None:
            if _on_host(array):
                inputs[place] = _host(array)
            elif array.size == 1 and array.dtype.kind == "f":
                inputs[place] = float(array.reshape(-1)[0])
            elif node.op in ("Resize", "Upsample"):
                inputs[place] = array
            else:
                inputs[place] = torch.from_numpy(np.array(array))
    return inputs


def _dequantised(node: OnnxNode, arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any]:
    """Stored weights times their scales: one for all, one an entry of an axis, or one a block."""
    value, scale = arrays[0], arrays[1]
    assert value is not None
    assert scale is not None
    zero = np.asarray(
        arrays[2] if len(arrays) > 2 and arrays[2] is not None else np.zeros_like(scale), np.float32
    )
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    if scale.ndim == 1 and scale.size > 1:
        shape = [1] * value.ndim
        shape[axis] = scale.size
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    elif block and scale.ndim == value.ndim:
        places = np.arange(value.shape[axis]) // block
        scale, zero = scale.take(places, axis), zero.take(places, axis)
    return np.asarray((value.astype(np.float32) - zero) * scale, scale.dtype)
