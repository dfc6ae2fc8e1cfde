"""Forms of operations that only some writers of ONNX files use: read, cut and written as they were.

Many forms stand side by side in one file, each behind the same convolution and before one of its own.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deeppruning as dp
from deeppruning.errors import InputError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

from importing.onnx_files import answers, model_of, written  # noqa: E402

WIDTH = 8
DRAW = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (DRAW.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def side_by_side(
    forms: Sequence[tuple[str, Sequence[str], dict[str, Any]]],
    constants: dict[str, np.ndarray],
    *,
    side: int = 8,
    width: int = WIDTH,
    opset: int = 17,
) -> Any:
    """A file with a convolution, nodes (operation, constants, attributes) behind it, one behind each."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1])]
    for place, (op, names, attributes) in enumerate(forms):
        nodes.append(helper.make_node(op, ["a", *names], [f"b{place}"], **attributes))
        nodes.append(helper.make_node("Conv", [f"b{place}", "last"], [f"y{place}"]))
    return model_of(
        nodes,
        inputs=[("x", ["n", 3, side, side])],
        outputs=[f"y{place}" for place in range(len(forms))],
        constants={"w": weights(WIDTH, 3, 3, 3), "last": weights(2, width, 1, 1), **constants},
        opset=opset,
    )


def cut_and_written(path: Path, folder: Path, *, genes: int) -> "dp.ChannelGraph":
    """Read, proven and written back: nodes of the same kinds, which answer as the thin network does."""
    network = dp.from_onnx(path)
    inputs = network.example_inputs()
    graph = dp.ChannelGraph(network, tuple(inputs.values()))
    assert graph.num_genes == genes, str(graph)
    genome = graph.repair(np.arange(graph.num_genes) % 3 > 0)
    assert graph.verify(genome)
    thin = graph.prune(genome)
    out = dp.export(thin, out=folder / "thin.onnx").path
    before, after = (
        Counter(node.op_type for node in onnx.load(str(file)).graph.node) for file in (path, out)
    )
    assert {op: after[op] for op in before if op not in ("Constant", "Identity")} == {
        op: count for op, count in before.items() if op not in ("Constant", "Identity")
    }
    with torch.no_grad():
        expected = thin(*inputs.values())
    listed = expected if isinstance(expected, tuple) else (expected,)
    for ours, theirs in zip(listed, answers(out, **inputs), strict=True):
        assert np.allclose(ours.numpy(), theirs, atol=1e-4)
    return graph


PLACES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize("scale", ["double", "half", pytest.param("more", marks=pytest.mark.slow)])
def test_every_place_and_rounding_of_a_resize(tmp_path: Path, scale: str) -> None:
    forms: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        (
            "Resize",
            ["", scale],
            {"mode": "nearest", "coordinate_transformation_mode": place, "nearest_mode": rounding},
        )
        for place in PLACES
        for rounding in ROUNDINGS
    ]
    forms += [
        ("Resize", ["", scale], {"mode": "linear", "coordinate_transformation_mode": place})
        for place in PLACES
    ]
    scales = {
        name: np.array([1, 1, number, number], np.float32)
        for name, number in (("double", 2), ("half", 0.5), ("more", 1.5))
    }
    path = written(tmp_path, side_by_side(forms, scales))
    assert cut_and_written(path, tmp_path, genes=WIDTH).num_genes == WIDTH


def test_old_resizes_are_asymmetric(tmp_path: Path) -> None:
    scales = {"scales": np.array([1, 1, 2, 2], np.float32), "less": np.array([1, 1, 0.5, 0.5], np.float32)}
    for opset, op in ((9, "Upsample"), (10, "Resize")):
        forms: list[tuple[str, Sequence[str], dict[str, Any]]] = [
            (op, ["scales"], {"mode": "linear"}),
            (op, ["scales"], {"mode": "nearest"}),
        ]
        forms += [(op, ["less"], {"mode": "nearest"})] if op == "Resize" else []
        path = written(tmp_path, side_by_side(forms, scales, opset=opset))
        assert cut_and_written(path, tmp_path, genes=WIDTH).num_genes == WIDTH


def test_transposed_convolutions_with_padding_of_any_form(tmp_path: Path) -> None:
    forms: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        ("ConvTranspose", ["up", "bias"], {"strides": [2, 2], **form})
        for form in (
            {"auto_pad": "SAME_UPPER"},
            {"auto_pad": "SAME_LOWER"},
            {"auto_pad": "VALID"},
            {"output_shape": [16, 16]},
            {"pads": [0, 0, 1, 1]},
            {"pads": [1, 0, 0, 1]},
            {"pads": [1, 1, 0, 0], "strides": [1, 1]},
            {"pads": [0, 1, 1, 1], "output_padding": [1, 1]},
        )
    ]
    constants = {"up": weights(WIDTH, 6, 3, 3), "bias": weights(6)}
    path = written(tmp_path, side_by_side(forms, constants, width=6))
    genes = WIDTH + 6 * len(forms)
    assert cut_and_written(path, tmp_path, genes=genes).num_genes == genes


def test_a_bias_added_behind_a_cropped_convolution_becomes_its_own(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("ConvTranspose", ["a", "up"], ["b"], pads=[0, 0, 1, 1], strides=[2, 2]),
        helper.make_node("Add", ["b", "bias"], ["c"]),
        helper.make_node("Conv", ["c", "last"], ["y"]),
    ]
    constants = {"w": weights(WIDTH, 3, 3, 3), "up": weights(WIDTH, 6, 3, 3), "last": weights(2, 6, 1, 1)}
    path = written(tmp_path, model_of(nodes, constants={**constants, "bias": weights(6, 1, 1)}))
    network = dp.from_onnx(path)
    layers = [module for module in network.modules() if isinstance(module, torch.nn.ConvTranspose2d)]
    assert [layer.bias is not None for layer in layers] == [True]
    image = torch.rand(1, 3, 8, 8)
    out = dp.export(network, out=tmp_path / "again.onnx").path
    assert np.allclose(answers(out, x=image)[0], answers(path, x=image)[0], atol=1e-5)


def test_operations_that_are_one_line_each(tmp_path: Path) -> None:
    forms: list[tuple[str, Sequence[str], dict[str, Any]]] = [
        (op, [], {}) for op in ("Sin", "Atan", "Asinh", "Sinh", "Cosh")
    ]
    forms += [
        ("Shrink", [], {"lambd": 0.1, "bias": 0.05}),
        ("PRelu", ["slope"], {}),
        ("PRelu", ["slopes"], {}),
    ]
    constants = {"slope": weights(WIDTH, 8, 8), "slopes": weights(WIDTH, 1, 1)}
    assert (
        cut_and_written(written(tmp_path, side_by_side(forms, constants)), tmp_path, genes=WIDTH).num_genes
        == WIDTH
    )


def recurrent(op: str, direction: str, gates: int, **attributes: Any) -> Any:
    """Convolutions, then a recurrent layer along the width, as readers of text have it."""
    ways = 2 if direction == "bidirectional" else 1
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["d"], axes=[2], keepdims=0),
        helper.make_node("Transpose", ["d"], ["e"], perm=[2, 0, 1]),
        helper.make_node(
            op, ["e", "of", "again", "add"], ["f", "last"], hidden_size=4, direction=direction, name="reader",
            **attributes,
        ),
        helper.make_node("Transpose", ["f"], ["g"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["g", "flat"], ["h"]),
        helper.make_node("MatMul", ["h", "head"], ["y"]),
    ]  # fmt: skip
    constants = {
        "w": weights(WIDTH, 3, 3, 3), "v": weights(6, WIDTH, 3, 3), "of": weights(ways, gates * 4, 6),
        "again": weights(ways, gates * 4, 4), "add": weights(ways, 2 * gates * 4),
        "flat": np.array([0, 0, -1]), "head": weights(4 * ways, 5),
    }  # fmt: skip
    return model_of(
        nodes, inputs=[("x", ["n", 3, 8, 8])], outputs=["y", "last"], constants=constants, opset=13
    )


@pytest.mark.parametrize(
    ("op", "direction"), [("LSTM", "forward"), ("LSTM", "bidirectional"), ("GRU", "reverse")]
)
def test_recurrent_layers_run_and_keep_what_enters_them(tmp_path: Path, op: str, direction: str) -> None:
    gates, options = (4, {}) if op == "LSTM" else (3, {"linear_before_reset": 1})
    path = written(tmp_path, recurrent(op, direction, gates, **options))
    graph = cut_and_written(path, tmp_path, genes=WIDTH)
    assert {group.filters: group.prunable for group in graph.groups} == {WIDTH: True, 6: False}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (recurrent("GRU", "forward", 3), "linear_before_reset=0"),
        (recurrent("LSTM", "forward", 4, clip=1.0), "clip"),
        (recurrent("LSTM", "forward", 4, activations=["Relu", "Tanh", "Tanh"]), "Relu"),
    ],
)
def test_recurrent_layers_that_torch_has_not_are_refused(tmp_path: Path, model: Any, said: str) -> None:
    with pytest.raises(InputError, match=rf"model\.onnx: the node 'reader' \((GRU|LSTM)\).*{said}"):
        dp.from_onnx(written(tmp_path, model))


def test_places_that_tensors_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("Gemm", ["c", "head"], ["d"]),
        helper.make_node("ScatterND", ["d", "tuples", "new"], ["e"]),
        helper.make_node("GatherND", ["e", "tuples"], ["y"]),
        helper.make_node("ScatterElements", ["e", "columns", "new2"], ["f"], axis=1),
        helper.make_node("GatherElements", ["f", "columns"], ["z"], axis=1),
        helper.make_node("ArgMax", ["f"], ["g"], axis=1, keepdims=0),
        helper.make_node("OneHot", ["g", "five", "off_on"], ["hot"], axis=1),
    ]
    constants = {
        "w": weights(WIDTH, 3, 3, 3), "head": weights(WIDTH, 5), "tuples": np.array([[0, 1], [0, -2]]),
        "new": weights(2), "columns": np.array([[0, -1]]), "new2": weights(1, 2), "five": np.array(5),
        "off_on": np.array([-1, 2], np.float32),
    }  # fmt: skip
    path = written(tmp_path, model_of(nodes, outputs=["y", "z", "hot"], constants=constants))
    assert cut_and_written(path, tmp_path, genes=WIDTH).num_genes == WIDTH


def test_weights_with_a_scale_for_each_block(tmp_path: Path) -> None:
    stored = DRAW.integers(-127, 127, (6, WIDTH)).astype(np.int8)
    scales = np.abs(weights(6, 2)) + 0.01
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("DequantizeLinear", ["stored", "scales"], ["v"], axis=1, block_size=4),
        helper.make_node("Unsqueeze", ["v", "axes"], ["v4"]),
        helper.make_node("Conv", ["a", "v4"], ["y"]),
    ]
    constants = {"w": weights(WIDTH, 3, 3, 3), "stored": stored, "scales": scales, "axes": np.array([2, 3])}
    network = dp.from_onnx(written(tmp_path, model_of(nodes, constants=constants, opset=21)))
    (second,) = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.in_channels == WIDTH]
    assert np.allclose(second.weight.detach().numpy()[:, :, 0, 0], stored * np.repeat(scales, 4, 1))


def test_a_size_that_becomes_a_number_without_axes_stays_a_size(tmp_path: Path) -> None:
    """Paddle writes a width as Shape, Gather, Reshape to no axes, Unsqueeze: the channels must not freeze."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Shape", ["a"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["width"]),
        helper.make_node("Reshape", ["width", "none"], ["number"]),
        helper.make_node("Unsqueeze", ["number", "zero"], ["listed"]),
        helper.make_node("Concat", ["first", "listed", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("ReduceMean", ["b"], ["c"], axes=[2], keepdims=0),
        helper.make_node("Gemm", ["c", "head"], ["y"]),
    ]
    constants = {
        "w": weights(WIDTH, 3, 3, 3), "head": weights(WIDTH, 5), "one": np.array([1]), "zero": np.array([0]),
        "none": np.array([], np.int64), "first": np.array([1]), "rest": np.array([-1]),
    }  # fmt: skip
    graph = dp.ChannelGraph(
        dp.from_onnx(written(tmp_path, model_of(nodes, constants=constants))), torch.zeros(1, 3, 8, 8)
    )
    assert graph.num_genes == WIDTH, str(graph)
    assert graph.verify(np.arange(WIDTH) % 2 == 0)


def test_a_detector_that_ends_in_a_selection_is_refused_with_the_way_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["a", "to_boxes"], ["b"]),
        helper.make_node("Reshape", ["b", "four"], ["c"]),
        helper.make_node("Transpose", ["c"], ["boxes"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["a", "to_scores"], ["d"]),
        helper.make_node("Reshape", ["d", "three"], ["scores"]),
        helper.make_node("Constant", [], ["most"], value=numpy_helper.from_array(np.array([9]))),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"], name="choose"),
        helper.make_node("Cast", ["chosen"], ["y"], to=1),
    ]
    constants = {
        "w": weights(WIDTH, 3, 3, 3), "to_boxes": weights(4, WIDTH, 1, 1),
        "to_scores": weights(3, WIDTH, 1, 1), "four": np.array([1, 4, -1]), "three": np.array([1, 3, -1]),
    }  # fmt: skip
    model = model_of(nodes, constants=constants)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["chosen", 3]))
    path = written(tmp_path, model)
    with pytest.raises(InputError, match=r"NonMaxSuppression \(1 node, 'choose'\)") as refused:
        dp.from_onnx(path)
    code = str(refused.value).split('python -c "')[1].rstrip('"')
    call = code.split("import onnx; ")[1]
    assert call.endswith("['x'], ['boxes', 'scores'])")
    before, after, thin = (tmp_path / f"{name}.onnx" for name in ("before", "after", "thin"))
    onnx.utils.extract_model(str(path), str(before), ["x"], ["boxes", "scores"])
    onnx.utils.extract_model(str(path), str(after), ["boxes", "scores"], ["y"])
    graph = dp.ChannelGraph(dp.from_onnx(before), torch.zeros(1, 3, 8, 8))
    assert graph.num_genes == WIDTH
    dp.export(graph.prune(graph.full_genome()), out=thin)
    pairs = [("boxes", "boxes"), ("scores", "scores")]
    whole = onnx.compose.merge_models(onnx.load(str(thin)), onnx.load(str(after)), io_map=pairs)
    image = torch.rand(1, 3, 8, 8)
    assert np.array_equal(answers(whole.SerializeToString(), x=image)[0], answers(path, x=image)[0])


def test_an_input_of_texts_is_refused(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], constants={"w": weights(4, 3, 3, 3)})
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(InputError, match=r"model\.onnx: its input 'x' takes text"):
        dp.from_onnx(written(tmp_path, model))
