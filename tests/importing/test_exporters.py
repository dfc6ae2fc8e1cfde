"""Files of both of torch's exporters, of every opset and every family of the zoo: read, cut and written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.errors import DeepPruningError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

from importing.onnx_files import answers, exported, model_of, varied, written  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
IMAGES = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
FAMILIES = ("resnet20", "vgg16", "densenet50", "mobilenet_v2", "efficientnet_b0", "squeezenet", "googlenet")


class Mixed(nn.Module):
    """What the other networks lack: slices, padding, a layer norm, attention, transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.first_norm = nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(4, 6, 2, stride=2)
        self.slope = nn.PReLU(6)
        self.norm, self.mix = nn.LayerNorm(6), nn.Linear(6, 6)
        self.attention = nn.Linear(6, 18)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first_norm(self.stem(nn.functional.pad(x, (1, 2, 0, 1))))
        x = x[:, :4] * torch.tanh(x[:, 4:])
        x = nn.functional.avg_pool2d(self.slope(self.up(x)), 2)
        x = self.mix(self.norm(x.flatten(2).transpose(1, 2)))
        queries, keys, values = self.attention(x).chunk(3, -1)
        x = x + torch.softmax(queries @ keys.transpose(1, 2), -1) @ values
        return self.head(x.mean(1))


def by_graph(network: nn.Module, path: Path, opset: int, side: int = 8) -> Path:
    """The file that torch's newer exporter writes."""
    example = torch.zeros(2, 3, side, side)
    torch.onnx.export(
        network, (example,), str(path), dynamo=True, input_names=["images"], output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},), opset_version=opset, external_data=False,
        verbose=False,
    )  # fmt: skip
    return path


def check(file: Path, network: nn.Module, folder: Path, side: int = 8) -> "dp.ChannelGraph":
    """Read, prove two cuts, write one back: every step answers as it should."""
    images = torch.randn(3, 3, side, side)
    read = dp.from_onnx(file)
    with torch.no_grad():
        assert torch.allclose(read(images), network(images), atol=2e-4)
    graph = dp.ChannelGraph(read, torch.zeros(1, 3, side, side))
    draw = np.random.default_rng(0)
    for share in (0.7, 0.3):
        genome = graph.repair(draw.random(graph.num_genes) < share)
        assert graph.verify(genome)
    thin = graph.prune(genome)
    out = dp.export(thin, out=folder / "thin.onnx")
    opsets = [
        [one.version for one in onnx.load(str(path)).opset_import if one.domain == ""]
        for path in (file, out.path)
    ]
    assert opsets[0] == opsets[1]
    with torch.no_grad():
        assert np.allclose(answers(out.path, images=images)[0], thin(images).numpy(), atol=2e-4)
    return graph


def slow(opset: int) -> Any:
    return pytest.param(opset, marks=pytest.mark.slow)


@pytest.mark.parametrize("opset", [9, slow(11), 13, slow(16), slow(20)])
def test_opsets_of_the_older_exporter(opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Mixed().eval()
    graph = check(exported(network, tmp_path / "mixed.onnx", opset), network, tmp_path)
    free = {layer for group in graph.groups if group.prunable for layer in group.layers}
    assert any("stem" in layer for layer in free), str(graph)
    assert any("up" in layer for layer in free), str(graph)


@pytest.mark.parametrize("opset", [18, slow(21)])
def test_opsets_of_the_newer_exporter(opset: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    network = varied()
    graph = check(by_graph(network, tmp_path / "varied.onnx", opset), network, tmp_path)
    assert all(group.prunable for group in graph.groups if "head" not in "".join(group.layers)), str(graph)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", [False, True], ids=["older", "newer"])
def test_every_family_of_the_zoo(family: str, graph: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = dp.create_model(family, num_classes=5, image_size=32).eval()
    path = tmp_path / "zoo.onnx"
    if graph:
        by_graph(network, path, 18, 32)
    else:
        example = torch.zeros(1, 3, 32, 32)
        torch.onnx.export(
            network, (example,), str(path), dynamo=False, input_names=["images"], output_names=["scores"],
            dynamic_axes={"images": {0: "b"}, "scores": {0: "b"}},
        )  # fmt: skip
    ours = dp.ChannelGraph(network, torch.zeros(1, 3, 32, 32))
    read = check(path, network, tmp_path, 32)
    # An exporter folds batch norms, which changes no filter.
    assert sum(one.filters for one in read.groups if one.prunable) == sum(
        one.filters for one in ours.groups if one.prunable
    )


def test_weights_in_external_files_are_read_and_written_inside(tmp_path: Path) -> None:
    weights = {
        "w": np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": np.random.default_rng(1).normal(size=(2, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    model = model_of(nodes, constants=weights)
    onnx.save_model(
        model, str(tmp_path / "outside.onnx"), save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip
    whole = written(tmp_path, model_of(nodes, constants=weights), "inside.onnx")
    network = dp.from_onnx(tmp_path / "outside.onnx")
    path = dp.export(network, out=tmp_path / "again" / "again.onnx").path
    assert np.allclose(answers(path, x=IMAGES[:1])[0], answers(whole, x=IMAGES[:1])[0], atol=1e-5)
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(DeepPruningError, match=r"weights.bin .* 864 bytes"):
        dp.from_onnx(tmp_path / "outside.onnx")


def test_old_slices_and_splits_follow_the_cut(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "v": draw.normal(size=(2, 12, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Slice", ["a"], ["b"], axes=[1], starts=[0], ends=[4]),
        helper.make_node("Split", ["a"], ["c", "d"], axis=1, split=[4, 4]),
        helper.make_node("Upsample", ["b", "scales"], ["e"], mode="nearest"),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["f", "c", "d"], ["g"], axis=1),
        helper.make_node("Conv", ["g", "v"], ["y"]),
    ]
    constants = {**weights, "scales": np.array([1, 1, 2, 2], np.float32)}
    path = written(tmp_path, model_of(nodes, constants=constants, opset=9))
    graph = dp.ChannelGraph(dp.from_onnx(path), torch.zeros(1, 3, 8, 8))
    assert graph.num_genes > 0
    genome = graph.repair(np.arange(graph.num_genes) % 2 == 0)
    assert graph.verify(genome)
    thin = graph.prune(genome)
    out = dp.export(thin, out=tmp_path / "thin.onnx").path
    with torch.no_grad():
        assert np.allclose(
            answers(out, x=IMAGES[:1])[0], thin(torch.from_numpy(IMAGES[:1])).numpy(), atol=1e-5
        )
