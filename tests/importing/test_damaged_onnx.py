"""Damaged and hostile ONNX files: errors of ours that name the file, no crash, no hang, bounded memory."""

import math
import random
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deeppruning as dp
from deeppruning.errors import DeepPruningError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import numpy_helper  # noqa: E402

from importing.onnx_files import exported, varied  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NUMBERS = (0, -1, 1, 2, 3, 7, 100, 5000, 20000, 1 << 20, 10**9, 1 << 31, 1 << 62, -(1 << 62), -5)
FLOATS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
OPERATIONS = (
    "Tile",
    "Expand",
    "ConstantOfShape",
    "Range",
    "Pad",
    "Resize",
    "Loop",
    "TopK",
    "Gather",
    "CumSum",
)
TYPES = (1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17)
MORE_MEMORY = 1 << 20  # kilobytes that reading damaged files may add


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("whole")
    return [exported(varied(), folder / f"{opset}.onnx", opset).read_bytes() for opset in (9, 17)]


def damaged(content: bytes, draw: random.Random) -> bytes:
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


def hostile(content: bytes, draw: random.Random) -> bytes:
    """A file that is well-formed, with numbers, operations, types and names that make no sense."""
    model = onnx.load_from_string(content)
    for _ in range(draw.randrange(1, 4)):
        _mutate(model.graph, draw)
    written: bytes = model.SerializeToString()
    return written


def _mutate(graph, draw: random.Random) -> None:
    node, tensor = draw.choice(graph.node), draw.choice(graph.initializer)
    kind = draw.randrange(8)
    if kind == 0 and node.attribute:
        attribute = draw.choice(node.attribute)
        if attribute.type == onnx.AttributeProto.INTS and attribute.ints:
            attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(NUMBERS)
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = draw.choice(NUMBERS)
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = draw.choice(FLOATS)
    elif kind == 1:
        sizes = [one for one in graph.initializer if one.data_type == onnx.TensorProto.INT64]
        sizes += [one.attribute[0].t for one in graph.node if one.op_type == "Constant" and one.attribute]
        _mutate_sizes(sizes, draw)
    elif kind == 2:
        node.op_type = draw.choice((*OPERATIONS, *(one.op_type for one in graph.node)))
    elif kind == 3 and node.input:
        node.input[draw.randrange(len(node.input))] = draw.choice((*draw.choice(graph.node).output, ""))
    elif kind == 4:
        side = draw.choice(graph.input[0].type.tensor_type.shape.dim)
        side.dim_value = draw.choice(NUMBERS)
    elif kind == 5 and tensor.dims:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(NUMBERS)
    elif kind == 6:
        graph.node.remove(node)
    elif kind == 7:
        tensor.data_type = draw.choice(TYPES)


def _mutate_sizes(tensors, draw: random.Random) -> None:
    # Those that are still what they say, after the mutations before.
    whole = [
        one
        for one in tensors
        if one.data_type == onnx.TensorProto.INT64 and len(one.raw_data) == 8 * math.prod(one.dims)
    ]
    if whole:
        tensor = draw.choice(whole)
        array = np.array(numpy_helper.to_array(tensor))
        flat = array.reshape(-1)
        if flat.size:
            flat[draw.randrange(flat.size)] = draw.choice(NUMBERS)
        tensor.CopyFrom(numpy_helper.from_array(flat.reshape(array.shape), tensor.name))


def try_all(contents: list[bytes], damage: Callable, folder: Path, seeds: range) -> int:
    """How many of the files are refused; each is, by an error of ours that names it, or it is read."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, path = 0, folder / "damaged.onnx"
    for seed in seeds:
        draw = random.Random(seed)
        path.write_bytes(damage(draw.choice(contents), draw))
        try:
            dp.from_onnx(path)
        except DeepPruningError as error:
            refused += 1
            assert "damaged.onnx" in str(error), seed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + MORE_MEMORY
    return refused


@pytest.mark.parametrize("damage", [damaged, hostile])
def test_tens_of_damaged_files(contents: list[bytes], damage: Callable, tmp_path: Path) -> None:
    assert try_all(contents, damage, tmp_path, range(20)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", [damaged, hostile])
def test_thousands_of_damaged_files(contents: list[bytes], damage: Callable, tmp_path: Path) -> None:
    assert try_all(contents, damage, tmp_path, range(100, 3100)) > 1000


def test_a_file_that_asks_for_all_memory_is_refused_in_little(contents: list[bytes], tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for side, said in ((1 << 20, "numbers"), (4000, "numbers|onnxruntime")):
        model = onnx.load_from_string(contents[0])
        for place in (2, 3):
            model.graph.input[0].type.tensor_type.shape.dim[place].dim_value = side
        path = tmp_path / "large.onnx"
        path.write_bytes(model.SerializeToString())
        with pytest.raises(DeepPruningError, match=rf"large\.onnx.*{said}|{said}.*large\.onnx"):
            dp.from_onnx(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + MORE_MEMORY
