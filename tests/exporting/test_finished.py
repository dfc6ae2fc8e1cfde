"""A finished run from Python: its page, its files and its figures, with a class of the user's own."""

from pathlib import Path

import pytest
import torch

import deeppruning as dp
from deeppruning.errors import InputError, WeightsError
from deeppruning.exporting import FORMATS
from deeppruning.jobs.result import Front
from deeppruning.reporting.data import collect
from deeppruning.runs import RunFolder
from export_runs import TinyNet, python_run
from search_helpers import EXAMPLE, digits, quick_finetune, tiny_net


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was started from Python with `TinyNet`."""
    return python_run(tmp_path_factory.mktemp("finished"))


def test_the_page_is_written(run: Path) -> None:
    page = dp.report(run)
    assert page == run / "report.html"
    assert "<title>" in page.read_text()


@pytest.mark.parametrize("format_", ["onnx", "safetensors"])
def test_networks_of_ones_own_class_are_exported(run: Path, format_: str) -> None:
    for package in FORMATS[format_].needs:
        pytest.importorskip(package)
    model = TinyNet().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    written = dp.export(run, model, solution="original", format=format_)
    assert written.path == run / "export" / f"original{FORMATS[format_].suffix}"
    assert 0.0 <= written.difference <= 1e-4
    assert str(written).startswith(f"{written.path}  (")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_class_of_ones_own_must_be_in_hand(run: Path) -> None:
    with pytest.raises(WeightsError, match=r"dp.export\(run, model\)"):
        dp.export(run, format="safetensors")
    with pytest.raises(WeightsError, match=r"dp.export\(run, model\)"):
        dp.bench(run)


def test_figures_print_are_kept_and_shown(run: Path) -> None:
    figures = dp.bench(run, batches=(2,), rounds=1, model=TinyNet())
    first = repr(figures).splitlines()[:5]
    assert [line.split()[0] for line in first] == ["network", "original", "heavy", "knee", "light"]
    assert collect(run)["bench"] == dict(figures)
    assert "PyTorch, batch 2" in (run / "report.html").read_text()


def test_figures_of_a_run_at_work_are_only_told(run: Path) -> None:
    with RunFolder.open(run), pytest.warns(UserWarning, match="not kept in the run"):
        figures = dp.bench(run, batches=(1,), rounds=1, model=TinyNet())
    assert len(figures["networks"]) == 4


@pytest.fixture(scope="module")
def front() -> Front:
    inputs = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return dp.search(tiny_net(), inputs, search=dp.SearchConfig(offspring=2, generations=1), workers=1)


def test_networks_at_hand_are_exported(front: Front, tmp_path: Path) -> None:
    thin = front.at(flops="90%")
    given = {"front": front, "thin": thin, "module": thin.model}
    for name, one in given.items():
        example = EXAMPLE if name == "module" else None
        out = tmp_path / f"{name}.onnx"
        written = dp.export(one, solution="light", out=out, example_input=example)
        assert written.path == out and out.is_file() and written.difference <= 1e-4
    with pytest.raises(InputError, match="say where the file is to be written"):
        dp.export(thin)
    with pytest.raises(InputError, match="give an input of the network as example_input"):
        dp.export(thin.model, out=tmp_path / "none.onnx")
    with pytest.raises(InputError, match=r"unknown solution 'kneee'; did you mean knee\?"):
        dp.export(front, solution="kneee", out=tmp_path / "none.onnx")


def test_networks_at_hand_are_measured_beside_the_original(front: Front) -> None:
    quick = {"batches": (1,), "rounds": 1}
    networks = dp.bench(front, **quick)["networks"]
    assert list(networks) == ["original", "heavy", "knee", "light"]
    assert networks["original"]["flops"] == front.original.flops
    assert networks["light"]["flops"] == front.light.flops
    alone = dp.bench(front.light.model, model=tiny_net(), example_input=EXAMPLE, **quick)["networks"]
    assert alone["network"]["flops"] == front.light.flops
    assert alone["network"]["params"] == front.light.params
    unsaved = dp.bench(front.light, **quick)["networks"]
    assert unsaved["light"]["file_bytes"] == networks["light"]["file_bytes"]
    with pytest.raises(InputError, match="give the original as model"):
        dp.bench(front.light.model, example_input=EXAMPLE)


def test_an_input_stands_in_where_a_task_left_no_shape(run: Path) -> None:
    network = dp.exporting.read_network(run, "knee", model=TinyNet(), example_input=torch.ones(5, 1, 8, 8))
    assert network.example(3).shape == (3, 1, 8, 8)
    assert float(network.example().min()) == 1.0


@pytest.mark.slow
def test_any_candidate_is_fine_tuned_and_taken_along(tmp_path: Path) -> None:
    train, test = digits()
    options = dp.SearchConfig(offspring=2, generations=1, sample=60)
    folder = tmp_path / "run"
    dp.prune(
        tiny_net(), train, test, run_dir=folder, search=options, finetune=quick_finetune(epochs=1), workers=1
    )
    other = dp.finetune(folder, tiny_net(), train, test, candidate=1)
    assert other.path == folder / "candidate-1.safetensors"
    assert "candidate-1" in (folder / "report.html").read_text()
    written = dp.export(folder, tiny_net(), solution="candidate-1", format="safetensors")
    assert written.path.read_bytes() == other.path.read_bytes()
    with pytest.raises(InputError, match="belongs to the run itself"):
        dp.export(folder, out=folder / "knee.safetensors", format="safetensors", model=tiny_net())
