"""Options in a stranger's file take neither the memory nor the processes that they ask for."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_calls import call
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.options.backend import BackendChoice
from deeppruning.cli.options.config_file import read_options
from deeppruning.data.folders import PictureForm
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.jobs.prepare import Compute
from deeppruning.runs import RunFolder
from deeppruning.runs.database import FORMAT
from deeppruning.system.device import available_threads, most_workers
from deeppruning.system.toml import DEEPEST, LARGEST, parse_toml
from deeppruning.training.folder import TrainFolder

HEADER = f'format = {FORMAT}\nversion = "0"\n'
DEEP = "a" + ".a" * 50_000
HUGE = "0x" + "f" * 5000
BOMBS = {
    "dotted key": f"{DEEP} = 1",
    "header": f"[{DEEP}]",
    "quoted parts": '"a"' + " . 'b'" * 20_000 + " = 1",
    "inline tables": "a = " + "{a.a.a.a.a.a.a = " * 1000,
    "arrays": "a = " + "[" * 100_000,
    "behind an odd text": f'a = {{b = """c"""", {DEEP} = 1}}',
    "behind an escaped quote": f'a = """b\\""" c"""\n{DEEP} = 1\nd = """e"""',
    "texts that do not end": 'a = "' + '\\"' * 100_000,
    "number": f"[run]\nworkers = {HUGE}",
    "fraction": f"[run]\nray_cpus = {HUGE}",
    "size": "a = 1\n" * (LARGEST // 6 + 1),
}


def read_everywhere(folder: Path, text: str) -> list[str]:
    """How each reader of TOML ends."""
    folder.mkdir()
    for name in ("config.toml", "train.toml"):
        (folder / name).write_text(HEADER + text)
    readers = (
        lambda: RunFolder.open(folder, read_only=True),
        lambda: read_options(folder / "config.toml", prune),
        lambda: TrainFolder(folder).claim({}),
    )
    ends = []
    for read in readers:
        try:
            read()
            ends.append("read")
        except DeepPruningError as error:
            reasons = ("nests deeper than", "more than 64 bits", "larger than", "Unterminated string")
            told = ".toml" in str(error) and any(reason in str(error) for reason in reasons)
            ends.append(f"refused {told}")
    return ends


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_in_toml_are_refused_before_they_are_parsed(name: str, tmp_path: Path) -> None:
    assert read_everywhere(tmp_path / "folder", BOMBS[name]) == ["refused True"] * 3


KEYS = st.sampled_from(["a", "b-1", '"x.y[{"', "'#.'", '"\\""'])
VALUES = st.sampled_from(["1.5", "[0.1, 0.2]", '"a.b # ["', "'''\n[[ '''", '""" \\" [ """', "{}", "true"])


@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=4), VALUES), max_size=12))
def test_honest_files_are_read_as_they_are(entries: list[tuple[list[str], str]]) -> None:
    text = "".join(f"k{place}.{'.'.join(key)} = {value} # ].\n" for place, (key, value) in enumerate(entries))
    assert list(parse_toml(text)) == [f"k{place}" for place in range(len(entries))]


def test_depth_is_counted_to_the_level() -> None:
    assert parse_toml("a" + ".a" * (DEEPEST - 1) + " = 1")
    assert parse_toml("a = " + "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1))
    for deeper in ("a" + ".a" * DEEPEST + " = 1", "a = " + "[" * DEEPEST + "]" * DEEPEST):
        with pytest.raises(ValueError, match=f"nests deeper than {DEEPEST} levels"):
            parse_toml(deeper)


def test_no_more_processes_than_cores_because_a_file_says_so(finished_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    options = (run / "config.toml").read_text()
    (run / "config.toml").write_text(options.replace("workers = 1", "workers = 65536"))
    (run / "light.safetensors").unlink()  # so that there is something to go on with
    cores = available_threads()
    said = call("resume", run).output
    assert f"65536 workers; this machine has {cores} cores, so {cores}" in said
    assert (run / "light.safetensors").exists()
    recorded = {"backend": "local", "workers": 65536}
    assert BackendChoice().or_as_in(recorded).workers == cores
    assert BackendChoice(workers=3).or_as_in(recorded).workers == 3
    assert BackendChoice().or_as_in({**recorded, "backend": "ray"}).workers == 65536  # of a cluster


def test_what_no_machine_has_room_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"workers must be at most {most_workers()} on this machine"):
        Compute(workers=65536).worker_count(1)
    with pytest.raises(InputError, match=r"loading_workers must lie in 0\.\."):
        PictureForm(readers=65536)
    for table in (
        "[search]\nthreads = 4096",
        "[search]\noffspring = 1000000",
        "[data]\nimage_size = [65536, 65536]",
    ):
        (tmp_path / "config.toml").write_text(HEADER + table)
        with pytest.raises(RunError, match=r"threads|offspring|image_size"):
            RunFolder.open(tmp_path, read_only=True)
