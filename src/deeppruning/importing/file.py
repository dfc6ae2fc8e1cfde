"""An ONNX file as plain nodes and constants; whatever cannot be rebuilt is refused before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.deploying.onnx_graph import require
from deeppruning.errors import InputError, WeightsError, reason_of
from deeppruning.importing.refusing import DOMAINS, name_of, operation_of, refuse_foreign

HALF_NAMES = ("float16", "bfloat16")
INPUT_TYPES = ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
LARGEST = 4 << 30  # bytes of a file and its external data; more is damage, or beyond this machine


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One operation: the names of the values it takes and gives, and its attributes."""

    op: str
    name: str
    inputs: tuple[str, ...]  # "" where an optional input is left out
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: bytes = b""  # as it is in the file; empty for a constant


@dataclass(frozen=True, eq=False)
class FileValue:
    """An input or output of the file: its name, type and shape, where a free dimension is a text or None."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True, eq=False)
class Header:
    """What a file says about itself, to be written into the file of its thin network."""

    opset: int
    ir_version: int
    model: bytes  # the file without its graph: producer, metadata, descriptions
    graph: bytes  # the graph without nodes and weights: name, description, inputs and outputs


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """What a file holds, in plain values."""

    path: Path
    nodes: list[OnnxNode]
    constants: dict[str, NDArray[Any]]
    inputs: list[FileValue]
    outputs: list[FileValue]
    header: Header
    metadata: dict[str, str]
    bytes: int  # with the files of its weights

    @property
    def is_half(self) -> bool:
        """Whether most of its weights are in half precision."""
        sizes = {True: 0, False: 0}
        for array in self.constants.values():
            sizes[array.dtype.name in HALF_NAMES] += array.size
        return sizes[True] > sizes[False]


def read_onnx(path: str | Path, supported: set[str]) -> OnnxFile:
    """Read a file of `supported` operations; anything else is an error that names what is wrong."""
    path = Path(path)
    onnx = require("onnx")
    if not path.is_file():
        raise InputError(f"{path} is not a file; give an ONNX file, for example model.onnx")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST:,} can be read")
    try:
        model = _loaded(onnx, path)
        opset = max((entry.version for entry in model.opset_import if entry.domain in DOMAINS), default=0)
        refuse_foreign(path, model.graph, opset, supported)
        size = path.stat().st_size + _load_external(onnx, model, path)
        graph = model.graph
        constants = {tensor.name: _array(onnx, tensor) for tensor in graph.initializer}
        nodes = [_node(onnx, node, place) for place, node in enumerate(graph.node)]
        inputs = [_value(onnx, info) for info in graph.input if info.name not in constants]
        _check_types(inputs)
        outputs = [_value(onnx, info) for info in graph.output]
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        header = _header(onnx, model, opset, {value.name for value in inputs})
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error
    except WeightsError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} asks for more memory than there is; is it damaged?") from error
    except Exception as error:  # protobuf, onnx and numpy each have errors of their own for a damaged file
        raise InputError(f"{path} cannot be read as ONNX ({reason_of(error)}); is it whole?") from error
    if not nodes or not outputs:
        raise InputError(f"{path} holds no network: {len(nodes)} nodes and {len(outputs)} outputs")
    nodes = _sorted(path, nodes, constants, inputs)
    return OnnxFile(path, nodes, constants, inputs, outputs, header, metadata, size)


def _loaded(onnx: Any, path: Path) -> Any:
    """The file as protobuf has it, with functions of its own written out where they are called."""
    model = onnx.load(str(path), load_external_data=False)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    if model.graph.sparse_initializer:
        count = len(model.graph.sparse_initializer)
        raise InputError(f"{path} has sparse weights ({count} tensors), which are not supported")
    return model


def _header(onnx: Any, model: Any, opset: int, inputs: set[str]) -> Header:
    """What the file says about itself."""
    whole, graph = onnx.ModelProto(), onnx.GraphProto()
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(whole, name, getattr(model, name))
    whole.metadata_props.extend(model.metadata_props)
    whole.opset_import.extend(entry for entry in model.opset_import if entry.domain in DOMAINS)
    graph.name, graph.doc_string = model.graph.name, model.graph.doc_string
    graph.input.extend(info for info in model.graph.input if info.name in inputs)
    graph.output.extend(model.graph.output)
    return Header(opset, model.ir_version, whole.SerializeToString(), graph.SerializeToString())


def _load_external(onnx: Any, model: Any, path: Path) -> int:
    """Tensors in files beside it, and how long these are; a path that leads out of its folder is refused."""
    files: dict[Path, int] = {}
    folder = path.parent.resolve()
    tensors = list(model.graph.initializer)
    tensors += [
        attribute.t for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")
    ]
    outside = [tensor for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if sum(_bytes_of(onnx, tensor) for tensor in outside) > LARGEST:
        raise InputError(f"{path} has more than {LARGEST:,} bytes of weights, which cannot be read")
    for tensor in outside:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        target = folder / entries.get("location", "")
        if not target.resolve().is_relative_to(folder) or target.is_symlink():
            raise WeightsError(
                f"{path}: the weights {tensor.name!r} point to {entries.get('location')!r}, outside "
                "its folder; move that file into the folder"
            )
        if not target.is_file():
            raise WeightsError(
                f"{path}: its weights file {entries.get('location')!r} is missing; put it beside it"
            )
        _read_external(onnx, tensor, target, int(entries.get("offset") or 0))
        files[target] = target.stat().st_size
    return sum(files.values())


def _read_external(onnx: Any, tensor: Any, target: Path, offset: int) -> None:
    """Fill a tensor from a file, with as many bytes as its shape has, whatever else is in the file."""
    wanted = _bytes_of(onnx, tensor)
    with target.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(wanted)
    if len(tensor.raw_data) != wanted:
        raise WeightsError(
            f"{target} ends within the weights {tensor.name!r}, which need {wanted:,} bytes from byte "
            f"{offset:,} on; is it whole?"
        )
    tensor.data_location = onnx.TensorProto.DEFAULT


def _bytes_of(onnx: Any, tensor: Any) -> int:
    """How many bytes a tensor of the file takes."""
    item = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return item * math.prod(max(0, int(size)) for size in tensor.dims)


def _array(onnx: Any, tensor: Any) -> NDArray[Any]:
    """A tensor of the file as a numpy array."""
    elements = math.prod(max(0, size) for size in tensor.dims)
    if elements > LARGEST:
        raise InputError(f"the tensor {tensor.name!r} has {elements:,} elements, more than can be read")
    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _node(onnx: Any, node: Any, place: int) -> OnnxNode:
    """A node of the file in plain values."""
    attributes = {attribute.name: _attribute(onnx, attribute) for attribute in node.attribute}
    name, op = name_of(node, place), operation_of(node)
    proto = b"" if op == "Constant" else node.SerializeToString()
    return OnnxNode(op, name, tuple(node.input), tuple(node.output), attributes, proto)


def _attribute(onnx: Any, attribute: Any) -> Any:
    """An attribute of a node as a Python value."""
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _array(onnx, value)
    if attribute.type == onnx.AttributeProto.STRING:
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    return value


def _value(onnx: Any, info: Any) -> FileValue:
    """An input or output of the file with its type and shape."""
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type"):
        raise InputError(f"{info.name} is no tensor but a sequence, map or optional, which is not supported")
    dtype = (
        onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else np.dtype(np.float32)
    )
    if not tensor.HasField("shape"):
        return FileValue(info.name, dtype, None)
    sizes = [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else dim.dim_param or None
        for dim in tensor.shape.dim
    ]
    return FileValue(info.name, dtype, tuple(sizes))


def _check_types(inputs: list[FileValue]) -> None:
    for value in inputs:
        if value.dtype.name not in INPUT_TYPES:
            kind = "text" if value.dtype.kind == "O" else value.dtype.name
            raise InputError(
                f"its input {value.name!r} takes {kind}, which is not supported; export the network with an "
                "input of float32"
            )


def _sorted(
    path: Path, nodes: list[OnnxNode], constants: dict[str, Any], inputs: list[FileValue]
) -> list[OnnxNode]:
    """The nodes so that each comes after those it takes values of, as ONNX asks but not every writer does."""
    made = {"", *constants, *(value.name for value in inputs)}
    rest, ready = list(nodes), []
    while rest:
        now = [node for node in rest if made.issuperset(node.inputs)]
        if not now:
            lost = next(name for name in rest[0].inputs if name not in made)
            raise InputError(
                f"{path}: the node {rest[0].name!r} takes {lost!r}, which nothing gives; is it whole?"
            )
        for node in now:
            made.update(node.outputs)
        ready += now
        done = set(map(id, now))
        rest = [node for node in rest if id(node) not in done]
    return ready
