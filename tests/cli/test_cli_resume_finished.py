"""Resuming a finished run: what was damaged since is made again, and what was changed is told."""

import shutil
from pathlib import Path

import pytest

from cli_calls import call
from deeppruning.errors import RunError
from deeppruning.jobs.solution import read_solution
from deeppruning.runs import RunFolder


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def trained_file(run: Path, role: str) -> Path:
    return (
        run
        / "finetune"
        / f"candidate-{read_solution(run / f'{role}.safetensors')[0]['candidate']}.safetensors"
    )


@pytest.mark.parametrize(
    "also", ["nothing else", "the file it was made of", "the wrong network in its place"]
)
def test_a_damaged_network_is_made_again(run: Path, also: str) -> None:
    knee, whole = run / "knee.safetensors", (run / "knee.safetensors").read_bytes()
    trained = trained_file(run, "knee")
    if also.startswith("the wrong"):
        shutil.copy(run / "heavy.safetensors", knee)
        told = "is not the network that the run saved there"
    else:
        damage(knee)
        told = "does not match its own checksum"
    if also == "the file it was made of":
        damage(trained)
        with pytest.warns(UserWarning, match=r"is damaged.*it is trained again"):
            said = call("resume", run)
    else:
        said = call("resume", run)
    assert f"{knee} {told}" in said.stderr or (f"{knee} is damaged" in said.stderr and told in said.stderr)
    assert "restored: knee" in said.output
    assert knee.read_bytes() == whole


@pytest.mark.slow
def test_what_resume_cannot_make_again_is_told_with_the_command_that_can(run: Path) -> None:
    call("finetune", run, "--candidate", 1, "--epochs", 1, "--quiet")
    damage(run / "candidate-1.safetensors")
    with pytest.raises(RunError, match=f"candidate-1.*finetune {run} --candidate 1`"):
        call("resume", run)
    call("finetune", run, "--candidate", 1, "--epochs", 1, "--quiet")
    assert "is finished" in call("resume", run).output


def test_edited_options_of_a_finished_run_are_told(run: Path) -> None:
    assert call("resume", run).stderr == ""
    options = (run / "config.toml").read_text()
    (run / "config.toml").write_text(options.replace("generations = 2", "generations = 3"))
    said = call("resume", run)
    assert "config.toml have changed since the run began: search.generations was 2 and is 3;" in said.stderr
    assert "is finished" in said.output


@pytest.mark.slow
def test_an_empty_history_is_told_and_what_is_advised_helps(run: Path) -> None:
    copy = (run / "history.sqlite").read_bytes()
    (run / "history.sqlite").write_bytes(b"")
    with pytest.raises(
        RunError, match=r"history\.sqlite is empty: nothing of the run is recorded; restore it from"
    ):
        call("report", run)
    with pytest.raises(
        RunError, match=r"empty or missing, though the run has networks \(.*restore it from a copy"
    ):
        call("resume", run)
    assert (run / "history.sqlite").read_bytes() == b""
    (run / "history.sqlite").write_bytes(copy)
    assert "is finished" in call("resume", run).output
    knee = (run / "knee.safetensors").read_bytes()
    for path in (*run.glob("*.safetensors"), *(run / "finetune").iterdir()):
        path.unlink()
    (run / "history.sqlite").write_bytes(b"")  # as a kill at its first instant leaves it
    call("resume", run, "--quiet")
    assert (run / "knee.safetensors").read_bytes() == knee


def test_a_missing_history_is_not_begun_again_beside_networks(run: Path) -> None:
    (run / "history.sqlite").unlink()
    with RunFolder.open(run) as opened, pytest.raises(RunError, match="empty or missing, though"):
        opened.history.facts()
