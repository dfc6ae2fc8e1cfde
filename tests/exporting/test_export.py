"""Exported networks compute what PyTorch computes, and what cannot be exported is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from cli_calls import call
from deeppruning.data.images import Normalization
from deeppruning.deploying.onnx_graph import has_onnx, open_session, run_session
from deeppruning.errors import GraphError, InputError, RunError, WeightsError
from deeppruning.exporting import FORMATS, Export, Normalized, export_onnx, export_program, read_network
from deeppruning.models import create_model
from deeppruning.models.registry import architecture_of
from export_runs import TinyNet, python_run

needs_onnx = pytest.mark.skipif(not has_onnx(), reason="onnx and onnxruntime are not installed")

FAMILIES = {
    "resnet20-pad": ("resnet20", {"shortcut": "pad", "image_size": 8}),
    "resnet20-conv": ("resnet20", {"shortcut": "conv", "image_size": 8}),
    "vgg16": ("vgg16", {"image_size": 32}),
    "densenet50": ("densenet50", {"image_size": 8}),
    "mobilenet_v2": ("mobilenet_v2", {"image_size": 8}),
    "efficientnet_b0": ("efficientnet_b0", {"image_size": 8}),
    "googlenet": ("googlenet", {"image_size": 8}),
    "squeezenet": ("squeezenet", {"image_size": 8}),
}

# Run in a process that has seen nothing of the networks but their files.
IN_A_NEW_PROCESS = """
import json, sys
from pathlib import Path
import torch
import deeppruning as dp
from deeppruning.exporting import export_onnx
from deeppruning.jobs.solution import read_solution

torch.set_num_threads(1)
for file in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    shape = json.loads(read_solution(file)[0]["image_shape"])
    difference = export_onnx(dp.load(file), torch.zeros(1, *shape), file.with_suffix(".onnx"))
    print(json.dumps([file.stem, difference]))
"""


def thin_zoo_network(name: str, options: dict, path: Path) -> nn.Module:
    torch.manual_seed(1)
    model = create_model(name, **options).eval()
    shape = (3, options["image_size"], options["image_size"])
    graph = dp.ChannelGraph(model, torch.zeros(1, *shape), depth=True)
    genome = np.random.default_rng(0).random(graph.num_genes) < 0.3  # thin, so that the test is quick
    for group in [group for group in graph.groups if group.removable][::2]:  # and without every second branch
        genome[list(group.genes)] = False
    thin = graph.prune(genome).eval()
    for module in thin.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: nothing is the identity
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    described = {"architecture": json.dumps(architecture_of(model)), "image_shape": json.dumps(shape)}
    dp.save(thin, path, graph, genome, role="knee", error=0.0, description=described)
    return thin


QUICK = ("densenet50",)  # concatenations and branches that are gone: what breaks an export first


@needs_onnx
@pytest.mark.parametrize(
    "families",
    [pytest.param(each, marks=pytest.mark.slow) for each in (QUICK, tuple(FAMILIES))],
    ids=["quick", "all"],
)
def test_zoo_families_round_trip_through_a_new_process(tmp_path: Path, families: tuple[str, ...]) -> None:
    thin = {
        family: thin_zoo_network(*FAMILIES[family], tmp_path / f"{family}.safetensors") for family in families
    }
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    reported = dict(json.loads(line) for line in done.stdout.splitlines())
    assert reported.keys() == set(families)
    for family, model in thin.items():
        session = open_session(tmp_path / f"{family}.onnx")
        assert session.get_inputs()[0].shape[0] == "batch"
        size = FAMILIES[family][1]["image_size"]
        for batch in (1, 5):
            images = torch.randn(batch, 3, size, size)
            with torch.no_grad():
                expected = model(images)
            (found,) = run_session(session, images)
            assert found.shape == (batch, 10)
            assert float((found - expected).abs().max()) <= 1e-4, family
        assert 0 <= reported[family] <= 1e-4


def command(*arguments: object) -> str:
    return call(*arguments).output


@needs_onnx
@pytest.mark.parametrize("solution", ["knee", "original"])
def test_normalisation_is_folded_in_on_request(own_run: Path, tmp_path: Path, solution: str) -> None:
    target = tmp_path / "raw.onnx"
    output = command("export", own_run, "--solution", solution, "--normalize", "--out", target)
    assert "largest difference from PyTorch" in output and "opset 18" in output
    network = read_network(own_run, solution)
    pixels = torch.randint(0, 256, (4, 1, 8, 8)).float()
    known = network.normalization()
    with torch.no_grad():
        expected = network.model((pixels / 255 - known.mean[0]) / known.std[0])
    (found,) = run_session(open_session(target), pixels)
    assert float((found - expected).abs().max()) <= 1e-4


@needs_onnx
def test_default_place_and_metadata(own_run: Path) -> None:
    import onnx

    command("export", own_run)
    model = onnx.load(str(own_run / "export" / "knee.onnx"))
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["classes"]) == [str(digit) for digit in range(10)]
    assert model.opset_import[0].version == 18
    assert sorted(path.name for path in (own_run / "export").iterdir()) == ["knee.onnx"]


def test_plain_weights_keep_the_metadata_and_load(own_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "weights.safetensors"
    command("export", own_run, "--solution", "light", "--format", "safetensors", "--out", target)
    assert target.read_bytes() == (own_run / "light.safetensors").read_bytes()


def test_torch_export_loads_back_with_a_free_batch(tmp_path: Path) -> None:
    network, target = TinyNet().eval(), tmp_path / "tiny.pt2"
    normalization = Normalization((0.3,), (0.2,))
    assert export_program(network, torch.zeros(1, 1, 8, 8), target, normalization=normalization) <= 1e-4
    pixels = torch.rand(5, 1, 8, 8) * 255
    found = torch.export.load(target).module()(pixels)
    assert torch.allclose(found, Normalized(network, normalization)(pixels), atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FORMATS if not FORMATS[name].folder])
def test_every_format_writes_a_file_and_tells_the_difference(name: str, tmp_path: Path) -> None:
    chosen, target = FORMATS[name], tmp_path / f"tiny{FORMATS[name].suffix}"
    for package in chosen.needs:
        pytest.importorskip(package)
    difference = chosen.write(Export(TinyNet().eval(), lambda: torch.zeros(1, 1, 8, 8)), target)
    assert 0.0 <= difference <= 1e-4
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


class Forgetful(nn.Module):
    """Differs from run to run, so no export can match it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) + torch.rand(1)


@pytest.mark.slow
@needs_onnx
def test_a_file_that_differs_is_not_kept(tmp_path: Path) -> None:
    target = tmp_path / "kept.onnx"
    target.write_bytes(b"earlier")
    with pytest.raises(GraphError, match="differs from PyTorch"):
        export_onnx(nn.Flatten(), torch.zeros(1, 1, 8, 8), target, tolerance=-1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.onnx"]
    assert target.read_bytes() == b"earlier"


class Remembering(nn.Module):
    """Keeps a running mean in evaluation mode too; what it does with it is told."""

    def __init__(self, used: str) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)
        self.used = used
        self.register_buffer("mean", torch.ones(1))
        self.register_buffer("known", torch.zeros(1, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.used == "first":  # only the first input counts, as in layers that are set up by it
            self.mean.copy_(torch.where(self.known, self.mean, x.mean()))
            self.known.fill_(True)
        else:
            self.mean.mul_(0.9).add_(0.1 * x.mean())
        return self.head(x.flatten(1)) * (1.0 if self.used == "never" else self.mean)


@needs_onnx
@pytest.mark.parametrize("export", [export_onnx, export_program])
def test_a_network_that_remembers_is_refused(export: Callable[..., float], tmp_path: Path) -> None:
    example = torch.zeros(1, 1, 8, 8)
    for used in ("always", "first"):
        with pytest.raises(GraphError, match=r"same input.*changes its own mean"):
            export(Remembering(used), example, tmp_path / "file")
    with pytest.raises(GraphError, match=r"same input.*by chance"):
        export(Forgetful(), example, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    if export is export_onnx:
        assert export(Remembering("never"), example, tmp_path / "file") <= 1e-4


@dataclass
class Scores:
    """A network's outputs in a class of its own."""

    scores: Tensor
    others: SimpleNamespace


class Described(nn.Module):
    """Gives its outputs in a dataclass that holds a namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 4, 3), nn.Linear(144, 3)

    def forward(self, x: Tensor) -> Scores:
        found = self.first(x).relu()
        return Scores(self.head(found.flatten(1)), SimpleNamespace(mean=found.mean((2, 3)), name="x"))


@needs_onnx
def test_outputs_in_a_class_of_their_own_are_exported(tmp_path: Path) -> None:
    network, images = Described().eval(), torch.randn(5, 1, 8, 8)
    assert export_onnx(network, images[:1], tmp_path / "net.onnx") <= 1e-4
    assert export_program(network, images[:1], tmp_path / "net.pt2") <= 1e-4
    found = run_session(open_session(tmp_path / "net.onnx"), images)
    with torch.no_grad():
        expected = network(images)
    assert len(found) == 2
    torch.testing.assert_close(found[0], expected.scores)
    torch.testing.assert_close(found[1], expected.others.mean)


class Counting(nn.Module):
    """Takes the batch for a plain number, which exporters write into the graph."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(int(x.shape[0]), -1).relu()


class Unusual(nn.Module):
    """Has an operation that only the newer exporter knows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(x)


@needs_onnx
def test_a_fixed_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"where PyTorch gives \[\(3, .*size, such as that of the batch"):
        export_onnx(Counting(), torch.zeros(1, 1, 4, 4), tmp_path / "counting.onnx")
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_what_the_older_exporter_lacks_is_exported_by_the_newer(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the newer exporter needs onnxscript")
    assert export_onnx(Unusual(), torch.zeros(1, 1, 4, 4), tmp_path / "unusual.onnx") <= 1e-4
    (found,) = run_session(open_session(tmp_path / "unusual.onnx"), torch.ones(7, 1, 4, 4))
    assert found.shape == (7, 1, 4, 4)


@needs_onnx
def test_the_exported_network_stays_as_it_is(tmp_path: Path) -> None:
    network = TinyNet().train()
    export_onnx(network, torch.zeros(1, 1, 8, 8), tmp_path / "tiny.onnx")
    assert network.training and int(network.norm.num_batches_tracked) == 0


def test_without_onnx_the_error_says_what_to_install(
    own_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # what Python does for a package that is absent
    with pytest.raises(InputError, match=r"pip install 'onnx>=1.16' 'onnxruntime>=1.18'"):
        command("export", own_run, "--out", tmp_path / "file.onnx")
    assert not (tmp_path / "file.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--solution", "kneee"], "did you mean knee"),
        (["--solution", "candidate-999"], "is not fine-tuned yet"),
        (["--format", "onx"], "did you mean onnx"),
        (["--format", "safetensors", "--normalize"], "weights only"),
        (["--weights", "somewhere.pt"], "for the original only"),
    ],
)
def test_bad_requests_are_refused(own_run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        command("export", own_run, *arguments)


def test_the_runs_own_files_are_never_overwritten(own_run: Path) -> None:
    before = (own_run / "knee.safetensors").read_bytes()
    with pytest.raises(InputError, match="belongs to the run itself"):
        command("export", own_run, "--format", "safetensors", "--out", own_run / "knee.safetensors")
    assert (own_run / "knee.safetensors").read_bytes() == before


def test_other_weights_for_the_original_are_refused(own_run: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(own_run / "finetune" / "original.safetensors")
    other = tmp_path / "other.safetensors"
    save_file({name: value + 1 for name, value in state.items()}, other)
    with pytest.raises(RunError, match="another network or other weights"):
        read_network(own_run, "original", weights=other)


def test_a_run_from_python_needs_the_class_in_hand(tmp_path: Path) -> None:
    run = python_run(tmp_path)
    with pytest.raises(WeightsError, match=r"dp.export\(run, model\)"):
        read_network(run, "knee")
    network = read_network(run, "original", model=TinyNet())
    assert network.example(2).shape == (2, 1, 8, 8)
    assert network.model.stem.weight.shape == (6, 1, 3, 3)


@needs_onnx
@pytest.mark.parametrize(
    ("example", "message"),
    [
        (
            torch.zeros(1, 1, 8, 8),
            r"cannot run on inputs of shape \(1, 1, 8, 8\), torch.float32: .*1 channels",
        ),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "torch.uint8: .*give the example_input that it takes"),
        (torch.zeros(0, 3, 8, 8), r"example_input is empty \(shape \(0, 3, 8, 8\)\)"),
        (np.zeros((1, 3, 8, 8)), "must be one tensor with a batch, got ndarray"),
        ((torch.zeros(1, 3, 8, 8),), "must be one tensor with a batch, got tuple"),
    ],
)
def test_examples_that_the_network_does_not_take_are_refused(
    tmp_path: Path, example: Any, message: str
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    with pytest.raises(InputError, match=message):
        dp.export(network, out=tmp_path / "net.onnx", example_input=example)
    assert list(tmp_path.iterdir()) == []
