"""Networks of timm and torchvision by name: built without a download, and rebuilt from a saved file alone."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import deeppruning as dp
from deeppruning.errors import InputError, WeightsError
from deeppruning.models import resolve_model
from deeppruning.models.libraries import is_library_name
from deeppruning.runs.trust import code_in

TASK = {"num_classes": 7, "in_channels": 3, "image_size": 32}
_DECLARED = []  # operators, as long as the tests run


@pytest.fixture(autouse=True, scope="module")
def operators() -> None:
    """Beside a torch for CPUs alone, torchvision misses operators that networks of images do not use."""
    if find_spec("torchvision") is None:
        return
    try:
        torch.ops.torchvision.nms  # noqa: B018
        import torchvision  # noqa: F401
    except (AttributeError, RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(library)


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


SPECS = [
    pytest.param("timm:mobilenetv3_small_050", marks=needs("timm")),
    pytest.param("torchvision:squeezenet1_1", marks=needs("torchvision")),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_network_is_built_for_the_task_and_remembers_its_name(spec: str) -> None:
    network = resolve_model(spec, **TASK).eval()
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
    assert network.architecture == {"name": spec, **TASK}


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_a_thin_network_is_rebuilt_without_code(spec: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = dp.create_model(spec, **TASK).eval()
    example = torch.rand(1, 3, 64, 64)
    graph = dp.ChannelGraph(network, example)
    genome = graph.full_genome()
    genome[::2] = False
    genome = graph.repair(genome)
    thin = graph.prune(genome).eval()
    dp.save(thin, tmp_path / "thin.safetensors", graph, genome)
    again = dp.load(tmp_path / "thin.safetensors")
    assert torch.equal(again(example), thin(example))
    assert graph.params(genome) < graph.params(graph.full_genome())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param("timm:mobilenetv3_smal_100", "unknown model of timm.*mobilenetv3", marks=needs("timm")),
        pytest.param("timm:hf-hub:some/net", "unknown model of timm", marks=needs("timm")),
        pytest.param("torchvision:resnet51", "unknown model of torchvision", marks=needs("torchvision")),
    ],
)
def test_only_names_that_the_library_lists_are_built(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_model(spec, **TASK)


@pytest.mark.parametrize(
    "option", ["pretrained", "weights", "checkpoint_path", "pretrained_cfg", "cache_dir"]
)
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_options_that_read_files_or_addresses_are_refused(library: str, option: str) -> None:
    with pytest.raises(InputError, match=f"does not take the option '{option}'"):
        resolve_model(f"{library}:resnet50", **TASK, **{option: "x"})


@needs("timm")
def test_other_options_reach_the_library() -> None:
    network = resolve_model("timm:mobilenetv3_small_050", **TASK, drop_path_rate=0.1)
    assert network.architecture["drop_path_rate"] == 0.1
    with pytest.raises(InputError, match="cannot be built with the options"):
        resolve_model("timm:mobilenetv3_small_050", **TASK, no_such_option=3)


@needs("torchvision")
def test_torchvision_takes_colour_images_only() -> None:
    with pytest.raises(InputError, match="take images of 3 channels, the data has 1"):
        resolve_model("torchvision:squeezenet1_1", num_classes=7, in_channels=1, image_size=32)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_library_that_is_not_installed_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=package)

    monkeypatch.setattr("deeppruning.models.libraries.importlib.import_module", missing)
    with pytest.raises(InputError, match=f"{package} is not installed: .*-m pip install {package}"):
        resolve_model(f"{package}:resnet50", **TASK)


def test_a_library_that_fails_to_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("deeppruning.models.libraries.importlib.import_module", failing)
    with pytest.raises(
        InputError, match=r"cannot be imported: RuntimeError: operator .* belongs to your torch"
    ):
        resolve_model("torchvision:resnet50", **TASK)


def test_a_name_of_a_library_is_no_code_of_the_user() -> None:
    assert code_in({"model": {"spec": "timm:resnet18"}}) == {}
    assert code_in({"model": {"spec": "timm.py:resnet18"}}) == {"model": "timm.py:resnet18"}
    assert [is_library_name(spec) for spec in ("timm:x", "torchvision:x", "timmy:x", "timm")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_file_cannot_ask_for_pretrained_weights(tmp_path: Path) -> None:
    from deeppruning.jobs.solution import rebuild

    text = (
        '{"name": "timm:resnet18", "num_classes": 7, "in_channels": 3, "image_size": 32, "pretrained": true}'
    )
    with pytest.raises(WeightsError, match="does not take the option 'pretrained'"):
        rebuild(tmp_path / "thin.safetensors", {"architecture": text})
