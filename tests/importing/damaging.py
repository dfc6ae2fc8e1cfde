"""ONNX files damaged in every way that comes to mind: bytes, numbers, types, names, edges, functions."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

NUMBERS = (0, -1, 1, 2, 3, 7, 100, 5000, 20000, 1 << 20, 10**9, 1 << 31, 1 << 62, -(1 << 62), -5)
FLOATS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
TYPES = (0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 99)
TEXTS = (
    "",
    "SAME_UPPER",
    "VALID",
    "linear",
    "cubic",
    "reflect",
    "bij,bjk->bik",
    "x" * 5000,
    "\u0000",
    "nchw",
)
OPERATIONS = (
    "Tile", "Expand", "ConstantOfShape", "Range", "Pad", "Resize", "Loop", "TopK", "Gather", "CumSum", "LSTM",
    "GatherND", "ScatterND", "OneHot", "PRelu", "ConvTranspose", "LRN", "GroupNormalization", "Einsum",
    "DequantizeLinear", "DepthToSpace", "GridSample", "Upsample", "Split", "Trilu", "NonMaxSuppression",
)  # fmt: skip
Draw = random.Random


def damaged(content: bytes, draw: Draw) -> bytes:
    """A file cut short, with bytes changed, left out or put in."""
    part = bytearray(content[: draw.randrange(1, len(content))] if draw.random() < 0.4 else content)
    for _ in range(draw.randrange(6)):
        place = draw.randrange(len(part) or 1)
        kind = draw.random()
        if kind < 0.6 and part:
            part[place] = draw.randrange(256)
        elif kind < 0.8:
            del part[place : place + draw.randrange(1, 9)]
        else:
            part[place:place] = draw.randbytes(draw.randrange(1, 9))
    return bytes(part)


def hostile(content: bytes, draw: Draw) -> bytes:
    """A file that is well-formed, with numbers, operations, types, names and edges that make no sense."""
    model = onnx.load_from_string(content)
    for _ in range(draw.randrange(1, 4)):
        draw.choice(MUTATIONS)(model, draw)
    written: bytes = model.SerializeToString()
    return written


def _attribute(model: Any, draw: Draw) -> None:
    node = draw.choice(model.graph.node)
    if not node.attribute:
        return
    attribute = draw.choice(node.attribute)
    if attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = draw.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = draw.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = draw.choice(TEXTS).encode()


def _attribute_list(model: Any, draw: Draw) -> None:
    """Lists of another length, attributes of another type or name, twice, or gone."""
    node = draw.choice(model.graph.node)
    if not node.attribute:
        node.attribute.append(helper.make_attribute(draw.choice(("axis", "pads", "group", "auto_pad")), 1))
        return
    attribute, kind = draw.choice(node.attribute), draw.randrange(5)
    if kind == 0:
        attribute.ints.extend([draw.choice(NUMBERS)] * draw.randrange(1, 4))
    elif kind == 1:
        del attribute.ints[draw.randrange(3) :]
    elif kind == 2:
        attribute.type = draw.randrange(15)
    elif kind == 3:
        node.attribute.append(attribute)
    else:
        node.attribute.remove(attribute)


def _written_size(model: Any, draw: Draw) -> None:
    whole = [  # those that are still what they say, after the mutations before
        tensor
        for tensor in _tensors(model)
        if tensor.data_type == onnx.TensorProto.INT64 and len(tensor.raw_data) == 8 * math.prod(tensor.dims)
    ]
    if not whole:
        return
    tensor = draw.choice(whole)
    array = np.array(numpy_helper.to_array(tensor))
    flat = array.reshape(-1)
    if flat.size:
        flat[draw.randrange(flat.size)] = draw.choice(NUMBERS)
    tensor.CopyFrom(numpy_helper.from_array(flat.reshape(array.shape), tensor.name))


def _operation(model: Any, draw: Draw) -> None:
    nodes = model.graph.node
    draw.choice(nodes).op_type = draw.choice((*OPERATIONS, *(node.op_type for node in nodes)))


def _edge(model: Any, draw: Draw) -> None:
    """A node takes what a later one gives (a cycle), what an earlier one gives, or nothing."""
    node = draw.choice(model.graph.node)
    if node.input:
        other = draw.choice(model.graph.node)
        node.input[draw.randrange(len(node.input))] = draw.choice(
            (*other.output, *node.output, "", "nowhere")
        )


def _arity(model: Any, draw: Draw) -> None:
    """More or fewer inputs and outputs than the operation has."""
    node, kind = draw.choice(model.graph.node), draw.randrange(4)
    if kind == 0:
        node.input.append(draw.choice((*draw.choice(model.graph.node).output, "")))
    elif kind == 1:
        del node.input[draw.randrange(2) :]
    elif kind == 2:
        node.output.append(draw.choice(("more", "", node.output[0] if node.output else "")))
    else:
        del node.output[:]


def _name(model: Any, draw: Draw) -> None:
    """A name twice, empty, or of something else."""
    values = [*model.graph.input, *model.graph.output, *model.graph.initializer, *model.graph.node]
    draw.choice(values).name = draw.choice(values).name if draw.random() < 0.7 else draw.choice(TEXTS)


def _input_shape(model: Any, draw: Draw) -> None:
    if not model.graph.input:
        return
    shape = draw.choice(model.graph.input).type.tensor_type.shape
    if shape.dim and draw.random() < 0.7:
        draw.choice(shape.dim).dim_value = draw.choice(NUMBERS)
    elif draw.random() < 0.5:
        shape.dim.add().dim_param = "more"
    else:
        del shape.dim[:]


def _dims(model: Any, draw: Draw) -> None:
    tensor = draw.choice(_tensors(model))
    if tensor.dims and draw.random() < 0.8:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(NUMBERS)
    else:
        tensor.dims.append(draw.choice(NUMBERS))


def _type(model: Any, draw: Draw) -> None:
    kind, values = draw.choice(TYPES), [*model.graph.input, *model.graph.output]
    if values and draw.random() < 0.3:
        draw.choice(values).type.tensor_type.elem_type = kind
    else:
        draw.choice(_tensors(model)).data_type = kind


def _contents(model: Any, draw: Draw) -> None:
    """Weights that are gone, doubled, not finite or in another file."""
    tensor, kind = draw.choice(_tensors(model)), draw.randrange(4)
    if kind == 0:
        tensor.ClearField("raw_data")
    elif kind == 1:
        tensor.float_data.extend([1.0, 2.0])
    elif kind == 2 and tensor.raw_data:
        tensor.raw_data = np.full(max(1, len(tensor.raw_data) // 4), np.nan, np.float32).tobytes()
    else:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key in ("location", "offset", "length"):
            where = draw.choice(("damaged.onnx", "/etc/passwd", "../x", "", ".", "/dev/zero"))
            number = draw.choice(("-1", "many", str(1 << 62), "0"))
            tensor.external_data.add(key=key, value=where if key == "location" else number)


def _removed(model: Any, draw: Draw) -> None:
    listed = draw.choice((model.graph.node, model.graph.output, model.graph.input, model.graph.initializer))
    if len(listed):
        del listed[draw.randrange(len(listed))]


def _opset(model: Any, draw: Draw) -> None:
    kind = draw.randrange(4)
    if kind == 0 or not model.opset_import:
        del model.opset_import[:]
    elif kind == 1:
        model.opset_import[0].version = draw.choice((*NUMBERS, *range(6, 26)))
    elif kind == 2:
        model.ir_version = draw.choice(NUMBERS)
    else:
        draw.choice(model.graph.node).domain = draw.choice(("com.microsoft", "ai.onnx", "mine"))


def _function(model: Any, draw: Draw) -> None:
    """A function of the file: one that calls itself, another one, or has other inputs than it is given."""
    node = draw.choice(model.graph.node)
    calls = helper.make_node(draw.choice(("Mine", "Other", "Relu")), ["q"], ["o"], domain="mine")
    inner = draw.choice((calls, helper.make_node("Relu", ["q"], ["o"])))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    for name in ("Mine", "Other")[: draw.randrange(1, 3)]:
        given = ["q", "r"][: draw.randrange(3)]
        model.functions.append(helper.make_function("mine", name, given, ["o"], [inner], opsets))
    model.opset_import.append(opsets[1])
    node.op_type, node.domain = "Mine", "mine"


MUTATIONS: tuple[Callable[[Any, Draw], None], ...] = (
    _attribute, _attribute, _attribute_list, _written_size, _written_size, _operation, _operation, _edge,
    _edge, _arity, _name, _input_shape, _dims, _dims, _type, _contents, _removed, _opset, _function,
)  # fmt: skip


def _tensors(model: Any) -> list[Any]:
    """The tensors of a file: its weights, and those in constants."""
    held = [
        attribute.t
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.HasField("t")
    ]
    return [*model.graph.initializer, *held] or [model.graph.initializer.add()]
