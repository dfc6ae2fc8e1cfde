"""A network that came from an ONNX file is written back as such a file, thin or whole, trained or not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

from importing.onnx_files import answers, exported, model_of, varied, written  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
IMAGES = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)


def described(path: Path) -> tuple:
    """What a file says about itself."""
    model = onnx.load(str(path))
    sides = [
        (one.name, [side.dim_value or side.dim_param for side in one.type.tensor_type.shape.dim])
        for one in (*model.graph.input, *model.graph.output)
    ]
    props = [(one.key, one.value) for one in model.metadata_props]
    opsets = [one.version for one in model.opset_import]
    texts = (
        model.producer_name,
        model.doc_string,
        model.model_version,
        model.graph.doc_string,
        model.graph.name,
    )
    return sides, props, opsets, texts


@pytest.fixture(scope="module", params=[9, 13, 17])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(varied(), tmp_path_factory.mktemp("onnx") / "varied.onnx", request.param)


def test_a_file_comes_back_as_it_was(file: Path, tmp_path: Path) -> None:
    again = dp.export(dp.from_onnx(file), out=tmp_path / "again.onnx")
    assert described(again.path) == described(file)
    assert f"opset {described(file)[2][0]}" in again.format
    assert np.allclose(answers(again.path, images=IMAGES)[0], answers(file, images=IMAGES)[0], atol=1e-5)


def test_thin_networks_are_written_with_the_sizes_they_have(file: Path, tmp_path: Path) -> None:
    network = dp.from_onnx(file)
    graph = dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8))
    draw = np.random.default_rng(1)
    for share in (0.8, 0.4, 0.0):
        genome = graph.repair(draw.random(graph.num_genes) < share)
        thin = graph.prune(genome)
        path = dp.export(thin, out=tmp_path / "thin.onnx").path
        assert described(path) == described(file)
        with torch.no_grad():
            expected = thin(torch.from_numpy(IMAGES)).numpy()
        assert np.allclose(answers(path, images=IMAGES)[0], expected, atol=1e-5)
        names = {node.op_type for node in onnx.load(str(path)).graph.node}
        assert names <= {node.op_type for node in onnx.load(str(file)).graph.node} | {
            "Gather",
            "Pad",
            "ReduceProd",
        }


@pytest.mark.slow
def test_the_best_of_a_search_keeps_names_and_a_trained_one_too(tmp_path: Path) -> None:
    file = exported(varied(), tmp_path / "varied.onnx")
    images = torch.randn(100, 3, 8, 8)
    options = dp.SearchConfig(offspring=4, generations=1, round_to=1)
    front = dp.search(dp.from_onnx(file), images, search=options, workers=1)
    best = front.best(flops=0.9)
    assert described(dp.export(best, out=tmp_path / "thin.onnx").path) == described(file)
    thin = best.model.train()
    torch.optim.SGD(thin.parameters(), 0.1)
    thin(images).square().sum().backward()
    with torch.no_grad():
        for parameter in thin.parameters():
            parameter -= 0.01 * parameter.grad
    path = dp.export(thin.eval(), out=tmp_path / "trained.onnx").path
    with torch.no_grad():
        assert np.allclose(answers(path, images=IMAGES)[0], thin(torch.from_numpy(IMAGES)).numpy(), atol=1e-5)


def two_inputs(opset: int = 17):
    """A file of two inputs and two outputs, with a fixed batch of one and sizes written for it."""
    draw = np.random.default_rng(0)
    constants = {
        "w": draw.normal(size=(6, 3, 3, 3)).astype(np.float32),
        "v": draw.normal(size=(6, 2)).astype(np.float32),
        "h": draw.normal(size=(6 * 16, 4)).astype(np.float32),
        "flat": np.array([1, 96]),
        "wide": np.array([1, 6, 1, 1]),
    }
    nodes = [
        helper.make_node("Conv", ["picture", "w"], ["a"], auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("Gemm", ["numbers", "v"], ["b"], transB=1, alpha=0.5),
        helper.make_node("Reshape", ["b", "wide"], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Reshape", ["e", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "h"], ["y"]),
        helper.make_node("ReduceMean", ["e"], ["z"], axes=[2, 3], keepdims=0),
    ]
    sides = [("picture", [1, 3, 8, 8]), ("numbers", [1, 2])]
    return model_of(nodes, inputs=sides, outputs=("y", "z"), constants=constants, opset=opset)


def test_two_inputs_and_a_fixed_batch(tmp_path: Path) -> None:
    path = written(tmp_path, two_inputs())
    network = dp.from_onnx(path)
    batch = {"picture": torch.randn(5, 3, 8, 8), "numbers": torch.randn(5, 2)}
    assert [tuple(one.shape) for one in network(**batch)] == [(5, 4), (5, 6)]
    one = {name: value[:1] for name, value in batch.items()}
    thin = dp.export(network, out=tmp_path / "thin.onnx").path
    for ours, theirs in zip(answers(thin, **one), answers(path, **one), strict=True):
        assert np.allclose(ours, theirs, atol=1e-5)


def test_half_precision_is_computed_in_single_and_written_in_half(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    constants = {
        "w": draw.normal(size=(8, 3, 3, 3)).astype(np.float16),
        "v": draw.normal(size=(4, 8, 1, 1)).astype(np.float16),
        "two": np.array(2, np.float16),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "two"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["y"]),
    ]
    path = written(tmp_path, model_of(nodes, constants=constants, kind=TensorProto.FLOAT16))
    network = dp.from_onnx(path)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    graph = dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8))
    assert graph.num_genes == 8
    genome = graph.repair(np.arange(8) < 4)
    out = dp.export(graph.prune(genome), out=tmp_path / "thin.onnx").path
    kinds = {tensor.name: tensor.data_type for tensor in onnx.load(str(out)).graph.initializer}
    assert set(kinds.values()) == {TensorProto.FLOAT16}
    assert [len(onnx.load(str(out)).graph.node), len(kinds)] == [4, 3]
    image = IMAGES[:1].astype(np.float16)
    with torch.no_grad():
        expected = graph.prune(genome)(torch.from_numpy(image)).numpy()
    assert np.allclose(answers(out, x=image)[0], expected, atol=0.05, rtol=0.02)


def test_a_layer_that_is_gone_leaves_no_node(tmp_path: Path) -> None:
    torch.manual_seed(0)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.inner, self.outer = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
            self.last = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            return self.last(torch.relu(x + self.outer(torch.relu(self.inner(x))))).mean((2, 3))

    file = exported(Residual().eval(), tmp_path / "residual.onnx")
    network = dp.from_onnx(file)
    graph = dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8), depth=True)
    genome = graph.full_genome()
    for group in graph.groups:
        if any("inner" in layer for layer in group.layers):
            genome[list(group.genes)] = False
    thin = graph.prune(graph.repair(genome))
    path = dp.export(thin, out=tmp_path / "thin.onnx").path
    kinds = [node.op_type for node in onnx.load(str(path)).graph.node]
    assert kinds.count("Conv") == 2
    with torch.no_grad():
        assert np.allclose(answers(path, images=IMAGES)[0], thin(torch.from_numpy(IMAGES)).numpy(), atol=1e-5)


@pytest.mark.parametrize("opset", [11, 17])
def test_a_branch_that_is_gone_still_fills_its_part_of_the_output(tmp_path: Path, opset: int) -> None:
    """Boxes and scores are joined: the bias of a head without inputs needs the size of its maps."""
    torch.manual_seed(0)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.score = nn.Sequential(
                nn.Conv2d(8, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1),
            )  # fmt: skip
            self.box = nn.Conv2d(8, 4, 3, stride=4, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.stem(x))
            return torch.cat([self.box(x).flatten(2), self.score(x).flatten(2).sigmoid()], 1)

    axes = {"images": {0: "batch", 2: "height", 3: "width"}, "scores": {0: "batch", 2: "places"}}
    file = exported(Heads().eval(), tmp_path / "heads.onnx", opset, dynamic_axes=axes)
    graph = dp.ChannelGraph(dp.from_onnx(file, torch.rand(2, 3, 8, 8)), torch.zeros(1, 3, 8, 8), depth=True)
    genome = graph.full_genome()
    for group in graph.groups:
        if any("score" in layer for layer in group.layers):
            genome[list(group.genes)] = False
    thin = graph.prune(genome)
    written = dp.export(thin, out=tmp_path / "thin.onnx")
    assert described(written.path) == described(file)
    for side in (8, 16):
        images = np.random.default_rng(side).normal(size=(3, 3, side, side)).astype(np.float32)
        with torch.no_grad():
            expected = thin(torch.from_numpy(images)).numpy()
        assert np.allclose(answers(written.path, images=images)[0], expected, atol=1e-5)
