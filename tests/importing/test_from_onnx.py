"""ONNX files become ordinary networks: they answer alike, can be cut and trained; others are refused."""

import copy
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.errors import DeepPruningError, InputError
from deeppruning.importing.building import SUPPORTED
from deeppruning.importing.file import read_onnx
from deeppruning.importing.network import rounding_of
from deeppruning.importing.sizes import Part, reshape_parts

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from importing import onnx_files  # noqa: E402
from importing.onnx_files import exported, model_of, written  # noqa: E402


@pytest.fixture(scope="module")
def varied() -> nn.Module:
    return onnx_files.varied()


@pytest.fixture(scope="module")
def file(varied: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(varied, tmp_path_factory.mktemp("onnx") / "varied.onnx")


@pytest.fixture(scope="module")
def network(file: Path) -> nn.Module:
    return dp.from_onnx(file)


def test_it_answers_as_the_network_it_was_written_from(network: nn.Module, varied: nn.Module) -> None:
    images = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(network(images), varied(images), atol=1e-5)
        assert torch.allclose(network(images=images), varied(images), atol=1e-5)


def test_it_has_layers_of_torch_named_after_the_nodes(network: nn.Module) -> None:
    kinds = [type(module) for module in network.modules()]
    # The exporter folds the batch norm into the convolution before it.
    assert kinds.count(nn.Conv2d) == 4
    assert kinds.count(nn.Linear) == 1
    assert "first_Conv" in dict(network.named_modules())


def test_it_copies_pickles_trains_and_is_exported(network: nn.Module, tmp_path: Path) -> None:
    images = torch.randn(2, 3, 8, 8)
    again = pickle.loads(pickle.dumps(copy.deepcopy(network)))
    assert torch.equal(again(images), network(images))
    again.train()(images).square().sum().backward()
    assert all(parameter.grad is not None for parameter in again.parameters())
    written = dp.export(network, out=tmp_path / "again.onnx", example_input=images[:1])
    assert torch.allclose(dp.from_onnx(written.path)(images), network(images), atol=1e-5)


def test_sizes_that_are_written_in_the_file_do_not_freeze_channels(network: nn.Module) -> None:
    graph = dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8))
    free = {layer: count for layer, (count, _) in graph.widths(~graph.full_genome()).items()}
    assert {layer: width for layer, (width, _) in graph.widths(graph.full_genome()).items()} != free
    assert all(group.prunable for group in graph.groups if "head" not in "".join(group.layers)), str(graph)
    generator = np.random.default_rng(0)
    for _ in range(3):
        genome = graph.repair(generator.random(graph.num_genes) < 0.6)
        assert graph.verify(genome)


def test_it_is_refitted_like_any_other(network: nn.Module) -> None:
    graph = dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8))
    genome = graph.repair(np.random.default_rng(1).random(graph.num_genes) < 0.7)
    images = torch.randn(64, 3, 8, 8)
    drift = {
        name: float((thin(images) - network(images)).abs().mean())
        for name, thin in (("cut", graph.prune(genome)), ("refitted", dp.refit(graph, genome, images)))
    }
    assert drift["refitted"] < drift["cut"]


@pytest.mark.parametrize(
    ("shape", "target", "smaller", "expected"),
    [
        ((2, 8, 4, 4), (2, 128), (3, 6, 4, 4), (3, 96)),
        ((2, 8, 4, 4), (2, 2, 4, 4, 4), (1, 6, 4, 4), (1, 2, 3, 4, 4)),
        ((2, 2, 4, 4, 4), (2, 8, 4, 4), (1, 2, 3, 4, 4), (1, 6, 4, 4)),
        ((2, 8, 1, 1), (2, 8), (5, 7, 1, 1), (5, 7)),
        ((2, 8), (2, 8, 1, 1), (5, 7), (5, 7, 1, 1)),
        ((1, 8, 4, 4), (1, 128), (3, 6, 4, 4), (3, 96)),
        ((1, 8, 4), (1, 1, 8, 4), (3, 6, 4), (3, 1, 6, 4)),
    ],
)
def test_what_a_written_size_stands_for(shape, target, smaller, expected) -> None:
    parts = reshape_parts(shape, target)
    assert tuple(part.of(smaller) for part in parts) == expected
    assert reshape_parts((2, 8), (3, 5)) is None
    assert Part(0, 0, 7).of((1, 2)) == 7


CONV = {"w": np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)}


def test_weights_may_be_constants_casts_and_dequantised(tmp_path: Path) -> None:
    weight = CONV["w"]
    scale = np.abs(weight).max((1, 2, 3)) / 127
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weight.astype(np.float16))),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["d"], ["w1"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["w2"], axis=0),
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w2"], ["b"], auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    quantised = np.round(weight / scale[:, None, None, None]).astype(np.int8)
    constants = {"q": quantised, "s": scale.astype(np.float32)}
    network = dp.from_onnx(written(tmp_path, model_of(nodes, constants=constants)))
    assert sum(isinstance(module, nn.Conv2d) for module in network.modules()) == 2
    assert dp.ChannelGraph(network, torch.zeros(1, 3, 8, 8)).num_genes == 0  # both are outputs


@pytest.mark.parametrize(
    ("node", "named"),
    [
        (helper.make_node("Hardmax", ["x"], ["y"], name="odd"), ["Hardmax", "'odd'", "1"]),
        (helper.make_node("QuantizeLinear", ["x", "s"], ["y"], name="small"), ["quantised", "'small'"]),
        (helper.make_node("Loop", ["x"], ["y"], name="again"), ["control flow", "Loop", "'again'"]),
    ],
)
def test_what_cannot_be_rebuilt_is_named_before_any_work(tmp_path: Path, node, named) -> None:
    path = written(tmp_path, model_of([node], constants={"s": np.ones(1, np.float32)}))
    with pytest.raises(InputError) as raised:
        dp.from_onnx(path)
    assert all(fact in str(raised.value) for fact in named)


EXTERNAL = [
    ("../secret", 0, "outside"),
    ("{outside}/secret", 0, "outside"),
    ("link", 0, "outside"),
    ("linked/secret", 0, "outside"),
    ("inner/../../secret", 0, "outside"),
    ("absent", 0, "missing"),
    ("inner", 0, "missing"),
    ("short", 0, "ends within"),
    ("whole", 1 << 40, "ends within"),
    ("whole", -1, "cannot be read"),
]


@pytest.mark.parametrize(("location", "offset", "said"), EXTERNAL)
def test_weights_outside_the_folder_or_cut_short_are_refused(
    tmp_path: Path, location: str, offset: int, said: str
) -> None:
    content = CONV["w"].tobytes()
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    for path, part in (("secret", content), ("model/whole", content), ("model/short", content[:-1])):
        (tmp_path / path).write_bytes(part)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], constants=CONV)
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location.format(outside=tmp_path), offset)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    with pytest.raises(DeepPruningError, match=said):
        dp.from_onnx(written(folder, model))


def test_weights_beside_the_file_count_as_its_own(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "outside.onnx"
    onnx.save_model(
        onnx.load(str(file)), str(path), save_as_external_data=True, location="w", size_threshold=0
    )
    read = read_onnx(path, SUPPORTED)
    assert read.bytes == path.stat().st_size + (tmp_path / "w").stat().st_size
    assert not read.is_half
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(dp.from_onnx(path)(images), dp.from_onnx(file)(images))


def test_many_weights_that_share_one_large_file_are_refused_unread(tmp_path: Path) -> None:
    """A sparse file of 3 GB takes no room; read by each of the weights it would."""
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(3 << 30)
    model = model_of([helper.make_node("Sum", ["x", "a", "b"], ["y"])])
    for name in "ab":
        tensor = model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[(3 << 30) // 4])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="zeros")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="bytes of weights"):
        dp.from_onnx(written(tmp_path, model))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (1 << 18)


def test_a_missing_file_and_wrong_inputs(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.onnx"):
        dp.from_onnx(tmp_path / "absent.onnx")
    with pytest.raises(InputError, match="images"):
        dp.from_onnx(file, {"pictures": torch.zeros(1, 3, 8, 8)})
    with pytest.raises(InputError, match="9, 9"):
        dp.from_onnx(file, torch.zeros(1, 3, 9, 9))


@pytest.mark.parametrize(
    "padding",
    [
        {"auto_pad": "SAME_UPPER", "kernel_shape": [2, 3], "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "kernel_shape": [2, 2]},
        {"pads": [0, 1, 1, 1], "kernel_shape": [3, 3]},
        {"pads": [2, 2, 2, 2], "kernel_shape": [3, 3]},
        {"pads": [2, 2, 2, 2], "kernel_shape": [3, 3], "count_include_pad": 1},
    ],
)
def test_averages_with_padding_of_any_form_are_cut_and_written(tmp_path: Path, padding) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["b"], **padding),
        helper.make_node("Conv", ["b", "last"], ["y"]),
    ]
    last = np.random.default_rng(1).normal(size=(2, 4, 1, 1)).astype(np.float32)
    inputs = [("x", ["n", 3, 9, 9])]
    path = written(tmp_path, model_of(nodes, inputs=inputs, constants={**CONV, "last": last}))
    graph = dp.ChannelGraph(dp.from_onnx(path), torch.zeros(1, 3, 9, 9))
    genome = graph.full_genome()
    genome[:2] = False
    assert graph.num_genes == 4 and graph.verify(genome)
    thin = graph.prune(genome)
    out = dp.export(thin, out=tmp_path / "thin.onnx")
    kinds = [node.op_type for node in onnx.load(str(out.path)).graph.node]
    assert kinds == ["Conv", "AveragePool", "Conv"]


def test_how_far_rounding_may_go_is_measured_on_the_network_itself(tmp_path: Path) -> None:
    image = {"x": torch.rand(1, 3, 8, 8)}

    def rounding(*nodes) -> float:
        constants = {**CONV, "large": np.float32([4096])}
        return rounding_of(dp.from_onnx(written(tmp_path, model_of(nodes, constants=constants))), image)

    assert 0 < rounding(helper.make_node("Conv", ["x", "w"], ["y"])) < 1e-4
    away = helper.make_node("Add", ["x", "large"], ["a"]), helper.make_node("Sub", ["a", "large"], ["y"])
    assert 1e-4 < rounding(*away) < 1e-2
    cast = helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT)
    assert rounding(cast, helper.make_node("Conv", ["a", "w"], ["y"])) == 0  # it has no double precision


def test_outputs_that_are_no_numbers_are_not_taken_for_equal(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Sqrt", ["a"], ["y"])]
    with pytest.raises(InputError, match="differs from onnxruntime's by nan"):
        dp.from_onnx(written(tmp_path, model_of(nodes)))
