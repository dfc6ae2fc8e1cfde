"""int8: a quantised file is small and errs little more, is kept in the run; bad requests write nothing."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import deeppruning as dp
from cli_calls import call
from deeppruning.deploying.onnx_graph import has_onnx, open_session, run_session
from deeppruning.errors import GraphError, InputError, RunError
from deeppruning.exporting import Export
from deeppruning.exporting.bench import int8_warnings, warnings_for
from deeppruning.exporting.int8 import Material, MaterialSource, error_of, export_int8
from deeppruning.reporting.data import collect
from deeppruning.runs import RunFolder
from deeppruning.runs.facts import INT8
from deeppruning.training.evaluate import evaluate
from export_runs import TinyNet, python_run
from search_helpers import digits

pytestmark = pytest.mark.skipif(not has_onnx(), reason="onnx and onnxruntime are not installed")


def command(*arguments: object) -> str:
    return call(*arguments).output


@pytest.fixture(scope="module")
def learnt() -> nn.Module:
    """A network of a few thousand weights that has learnt the digits, in a second."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    train, _ = digits(400)
    images = train.images.float() / 255
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(25):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), train.labels).backward()
        optimizer.step()
    return model.eval()


def test_a_quantised_network_is_small_and_errs_little_more(learnt: nn.Module, tmp_path: Path) -> None:
    (train, test), target = digits(400, 300), tmp_path / "small.onnx"
    plain = [part.images.float() / 255 for part in (train, test)]
    material = Material(plain[0], type(test)(plain[1], test.labels, test.classes))
    wanted = Export(learnt, lambda: torch.zeros(1, 1, 8, 8), metadata={"role": "knee"})
    difference, figures = export_int8(wanted, target, material)
    assert [path.name for path in tmp_path.iterdir()] == ["small.onnx"]
    assert figures["file_bytes"] == target.stat().st_size < 0.5 * figures["float_file_bytes"]
    assert (figures["calibration_inputs"], figures["test_images"]) == (400, 300)
    assert material.test is not None
    assert figures["float_test_error"] == pytest.approx(evaluate(learnt, material.test).error)
    assert figures["float_test_error"] < 0.1
    assert abs(figures["test_error"] - figures["float_test_error"]) <= 0.03
    assert figures["test_error"] == error_of(target, material.test, pixels=False)
    assert 0 < difference < 2
    for batch in (1, 5):
        (found,) = run_session(open_session(target), torch.rand(batch, 1, 8, 8))
        assert found.shape == (batch, 10)


def test_half_precision_is_quantised_all_the_same(learnt: nn.Module, tmp_path: Path) -> None:
    import copy

    half = copy.deepcopy(learnt).bfloat16()
    wanted = Export(half, lambda: torch.zeros(1, 1, 8, 8).bfloat16())
    _, figures = export_int8(wanted, tmp_path / "half.onnx", Material(torch.rand(8, 1, 8, 8)))
    assert figures["test_error"] is None and figures["file_bytes"] < figures["float_file_bytes"]
    assert {each.dtype for each in half.parameters()} == {torch.bfloat16}


def test_what_was_written_is_told_kept_and_shown(own_run: Path) -> None:
    output = command("export", own_run, "--int8", "--test-images", 100)
    file = own_run / "export" / "knee-int8.onnx"
    assert f"{file}  (ONNX, opset 18, int8, {file.stat().st_size:,} bytes)" in output
    assert "calibrated on 100 inputs" in output and "(100 images)" in output and "report:" in output
    with RunFolder.open(own_run, read_only=True) as run:
        kept = run.history.get_fact(INT8)["knee"]
    assert kept["file_bytes"] == file.stat().st_size
    assert kept["test_images"] == 100 and 0 <= kept["test_error"] <= 1
    assert collect(own_run)["int8"] == {"knee": kept}
    assert '"float_test_error"' in (own_run / "report.html").read_text()


def test_an_exported_file_is_measured_beside_floats(own_run: Path) -> None:
    if not (own_run / "export" / "knee-int8.onnx").is_file():
        command("export", own_run, "--int8", "--test-images", 50)
    figures = json.loads(command("bench", own_run, "--runs", 2, "--batch", 1, "--json"))
    kinds = ["PyTorch, batch 1", "PyTorch as loaded, batch 1", "onnxruntime, batch 1"]
    kinds.append("onnxruntime int8, batch 1")
    assert list(figures["networks"]["knee"]["latency_ms"]) == kinds
    assert list(figures["networks"]["original"]["latency_ms"]) == kinds[:3]
    assert list(figures["int8"]) == ["knee"]


def test_bench_quantises_all_on_request(own_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(own_run, tmp_path / "run")
    output = command("bench", run, "--int8", "--runs", 2, "--batch", 2, "--test-images", 50)
    names = ["original", "heavy", "knee", "light"]
    rows = [line.split()[0] for line in output.splitlines() if line.split()]
    assert [name for name in rows if name in names] == names * 3
    kept = collect(run)
    assert list(kept["int8"]) == names
    for name in names:
        assert kept["bench"]["networks"][name]["latency_ms"]["onnxruntime int8, batch 2"]["runs"] == 2
        assert kept["int8"][name]["test_images"] == 50
    assert "deployment form" in output


@pytest.mark.slow
def test_a_run_from_python_takes_inputs_in_hand(tmp_path: Path) -> None:
    run, (train, test) = python_run(tmp_path), digits(60, 40)
    with pytest.raises(InputError, match="calibration=inputs"):
        dp.export(run, int8=True, model=TinyNet())
    assert not (run / "export").exists()
    written = dp.export(run, int8=True, model=TinyNet(), calibration=train, test=test)
    assert written.int8 is not None and written.int8["calibration_inputs"] == 60
    assert written.int8["test_images"] == 40
    assert "test error: " in str(written)
    other = dp.export(run, TinyNet(), solution="light", int8=True, calibration=torch.rand(9, 1, 8, 8))
    assert other.int8 is not None and other.int8["test_error"] is None
    assert "no test images were given" in str(other)
    assert list(collect(run)["int8"]) == ["knee", "light"]


@pytest.mark.slow
def test_pixels_go_in_where_the_normalisation_is_folded_in(own_run: Path, tmp_path: Path) -> None:
    errors = []
    for place, more in enumerate(([], ["--normalize"])):
        target = tmp_path / f"{place}.onnx"
        command("export", own_run, "--int8", "--test-images", 100, "--out", target, *more)
        with RunFolder.open(own_run, read_only=True) as run:
            errors.append(run.history.get_fact(INT8)["knee"]["float_test_error"])
    assert abs(errors[0] - errors[1]) <= 0.02  # of 100 images: what is folded is rounded otherwise


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--int8", "--format", "torch-export"], "int8 files are ONNX files"),
        (["--data-dir", "somewhere"], "--data-dir need --int8"),
        (["--int8", "--data", "digitz"], "digits"),
    ],
)
def test_bad_requests_are_refused_and_write_nothing(
    own_run: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    target = tmp_path / "file.onnx"
    with pytest.raises(dp.errors.DeepPruningError, match=message):
        command("export", own_run, "--out", target, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_the_error_says_what_to_install(
    own_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # what Python does for a package that is absent
    for name in ("export", "bench"):
        with pytest.raises(InputError, match=r"pip install 'onnx>=1.16' 'onnxruntime>=1.18'"):
            command(name, own_run, "--int8")


def test_what_cannot_be_quantised_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "kept.onnx"
    target.write_bytes(b"earlier")
    sums = Export(nn.Sequential(nn.Flatten(), nn.Tanh()), lambda: torch.zeros(1, 1, 8, 8))
    with pytest.raises(GraphError, match="no layer that onnxruntime quantises"):
        export_int8(sums, target, Material(torch.rand(4, 1, 8, 8)))
    wrong = Export(nn.Conv2d(1, 2, 3), lambda: torch.zeros(1, 1, 8, 8))
    with pytest.raises(GraphError, match="cannot quantise this network"):
        export_int8(wrong, target, Material(torch.rand(4, 3, 8, 8)))
    assert target.read_bytes() == b"earlier" and len(list(tmp_path.iterdir())) == 1


def test_a_run_at_work_is_left_alone(own_run: Path, tmp_path: Path) -> None:
    with RunFolder.open(own_run) as run:
        before = run.history.get_fact(INT8)
        output = command("export", own_run, "--int8", "--test-images", 10, "--out", tmp_path / "file.onnx")
        assert "not kept in the run" in output
        assert run.history.get_fact(INT8) == before


def test_images_cannot_be_had_from_nowhere(own_run: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        MaterialSource(calibration=torch.zeros(0, 1, 8, 8)).open(own_run)
    with pytest.raises(InputError, match="test images must be at least 1"):
        MaterialSource(test_images=0).open(own_run)
    with pytest.raises((InputError, RunError)):
        MaterialSource().open(own_run / "nowhere")


def test_warns_where_the_processor_gains_nothing() -> None:
    def network(plain: float, small: float) -> dict[str, object]:
        both = {"onnxruntime, batch 1": plain, "onnxruntime int8, batch 1": small}
        return {"flops": 10, "latency_ms": {how: {"median": value} for how, value in both.items()}}

    found = {"original": network(1.0, 0.5), "knee": network(1.0, 1.25)}
    assert int8_warnings(found) == ["this CPU gains nothing from int8 here: knee is 25 % slower (batch 1)"]
    assert warnings_for(found) == []
