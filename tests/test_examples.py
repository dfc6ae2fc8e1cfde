"""The examples run and print what they promise; the doctests of the package hold."""

import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import deeppruning

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_own_model() -> None:
    printed = run("own_model.py")
    difference = float(re.search(r"masked network: (\S+)", printed).group(1))
    assert difference < 1e-8
    assert "(1, 10)" in printed


@pytest.mark.slow
def test_segmentation(tmp_path: Path) -> None:
    lines = run("segmentation.py", str(tmp_path)).splitlines()
    assert [line.split()[0] for line in lines] == ["original", "heavy", "knee", "light"]
    flops = [int(line.split()[3].replace(",", "")) for line in lines]
    assert flops[0] > max(flops[1:])
    assert flops[3] == min(flops)
    assert float(lines[1].split()[2]) < 0.3


def figures(printed: str) -> dict[str, tuple[float, float]]:
    """The table of an example: share of the FLOPs and metric of each network."""
    rows = re.findall(r"^(\w[\w, ]+?) +([\d.]+)% +([\d.]+)(%?)$", printed, re.MULTILINE)
    return {
        name: (float(share) / 100, float(value) / (100 if cent else 1)) for name, share, value, cent in rows
    }


def check_halved(
    printed: str, *, original: float, refitted: float, trained: float
) -> dict[str, tuple[float, float]]:
    """Half of the FLOPs are gone, and no more of the metric than said, by the search and in the end."""
    found = figures(printed)
    assert found["original"][0] == 1.0 and found["original"][1] >= original
    for name, most in (("half, refitted", refitted), ("half, trained on", trained)):
        share, metric = found[name]
        assert 0.3 < share <= 0.5
        assert found["original"][1] - metric <= most
    return found


@pytest.mark.slow
def test_plain_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / "plain_loop.py"))["main"](tmp_path)
    found = check_halved(capsys.readouterr().out, original=0.9, refitted=0.03, trained=0.03)
    assert found["half, loaded again"] == found["half, trained on"]
    assert (tmp_path / "half.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "original", "refitted", "trained"),
    [
        ("segmentation_unlabelled.py", 0.80, 0.03, 0.03),  # mean IoU
        ("detection.py", 0.95, 0.05, 0.02),  # AP at IoU 0.5
        ("audio.py", 0.94, 0.02, 0.02),  # accuracy
    ],
)
def test_half_of_the_flops_without_labels(
    name: str, original: float, refitted: float, trained: float
) -> None:
    check_halved(run(name), original=original, refitted=refitted, trained=trained)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "needed", "refitted", "trained"),
    [
        ("lightning_module.py", ("lightning",), 0.04, 0.04),
        ("transformers_trainer.py", ("transformers", "accelerate"), 0.06, 0.05),
    ],
)
def test_trainers_of_others(name: str, needed: tuple[str, ...], refitted: float, trained: float) -> None:
    for package in needed:
        pytest.importorskip(package, reason=f"{package} comes with the extra `examples`: make test-all")
    check_halved(run(name), original=0.9, refitted=refitted, trained=trained)


def torchvision_runs() -> bool:
    """Whether its compiled operators fit the torch that is installed: Ultralytics' validation needs them."""
    code = "import torch, torchvision; torchvision.ops.nms(torch.rand(1, 4), torch.rand(1), 0.5)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
def test_yolo(tmp_path: Path) -> None:
    pytest.importorskip("ultralytics", reason="pip install ultralytics (AGPL-3.0, in no extra)")
    if not torchvision_runs():
        pytest.skip("torchvision's operators do not load beside this torch; Ultralytics validates with them")
    brief = ("--first-epochs", "2", "--epochs", "1", "--offspring", "4", "--generations", "1")
    printed = run("yolo.py", "--out", str(tmp_path), "--flops", "0.6", *brief)
    rows = dict(re.findall(r"^(original|thin, \w[\w ]+?) +([\d.]+)% ", printed, re.MULTILINE))
    assert list(rows) == ["original", "thin, refitted", "thin, trained on"]
    assert rows["original"] == "100.0"
    assert 30 < float(rows["thin, refitted"]) <= 60
    assert rows["thin, trained on"] == rows["thin, refitted"]
    assert "exported thin.onnx" in printed
    sizes = {name: (tmp_path / name).stat().st_size for name in ("refitted.pt", "thin.pt")}
    original = (tmp_path / "original" / "weights" / "best.pt").stat().st_size
    assert max(sizes.values()) < original  # also the one that Ultralytics trained: it is still thin


MODULES = sorted(module.name for module in pkgutil.walk_packages(deeppruning.__path__, "deeppruning."))


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
