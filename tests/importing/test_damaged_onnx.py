"""Damaged and hostile ONNX files: errors of ours that name the file, no crash, no hang, bounded memory."""

import os
import random
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import deeppruning as dp
from deeppruning.errors import DeepPruningError, InputError
from deeppruning.importing import onnxruntime_process, trying
from deeppruning.importing.file import OnnxFile

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from importing.damaging import damaged, hostile  # noqa: E402
from importing.onnx_files import exported, varied  # noqa: E402
from importing.test_exporters import Mixed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
MORE_MEMORY = 1 << 20  # kilobytes that reading damaged files may add
MORE_ADDRESSES = 4 << 30  # bytes, likewise
MOST_SECONDS = 120  # for one file; an alarm ends the process
THOUSANDS = 6000  # of files in the slow test, one half of each kind
AT_ONCE = 250


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("whole")
    made = [exported(varied(), folder / f"{opset}.onnx", opset).read_bytes() for opset in (9, 17)]
    torch.manual_seed(0)
    return [*made, exported(Mixed().eval(), folder / "mixed.onnx", 13).read_bytes()]


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


def forked_run(file: OnnxFile, folder: Path, memory: int) -> None:
    """onnxruntime in a fork in place of a new process, which is ten times as fast to start."""
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS // 2)
        try:
            onnxruntime_process.main(str(file.path.absolute()), folder, 1, _addresses() + memory)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise InputError(f"{file.path} makes onnxruntime crash ({status}); is it damaged?")


def outcome_of(path: Path, noted: Path) -> str:
    """What reading a file comes to, in a process of its own with an end to its memory and time."""
    noted.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS)
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (_addresses() + MORE_ADDRESSES, hard))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            dp.from_onnx(path)  # which compares it with onnxruntime
            said = "read"
        except DeepPruningError as error:
            said = "refused" if path.name in str(error) else f"refused without its name: {error}"
        except BaseException:
            said = traceback.format_exc()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > before + MORE_MEMORY:
            said = f"much memory, then {said}"
        noted.write_text(said, errors="replace")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return noted.read_text() if status == 0 else f"ended with {status}"


def _addresses() -> int:
    """Bytes of addresses that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit of memory needs Linux")
@pytest.mark.parametrize("start", range(0, THOUSANDS, AT_ONCE))
def test_thousands_of_damaged_files(
    contents: list[bytes], start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "_run", forked_run)
    path, outcomes = tmp_path / "damaged.onnx", Counter()
    for seed in range(start, start + AT_ONCE):
        draw = random.Random(seed)
        path.write_bytes((damaged, hostile)[seed % 2](draw.choice(contents), draw))
        outcome = outcome_of(path, tmp_path / "outcome.txt")
        assert outcome in ("read", "refused"), f"seed {seed}: {outcome}"
        outcomes[outcome] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 0


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
