"""A run folder is data: the code that it names is run for who made it or vouches for it, no one else."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from click.testing import CliRunner

from cli_search import arguments, trained
from deeppruning.cli.main import cli
from deeppruning.cli.options.run import Vouched
from deeppruning.errors import RunError
from deeppruning.exporting import read_network
from deeppruning.runs import RunFolder
from deeppruning.runs.trust import KEY_BYTES, code_in, is_signed, sign, state_folder
from deeppruning.system.toml import parse_toml


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def edit(run: Path, table: str, **changes: object) -> None:
    content = parse_toml((run / "config.toml").read_text())
    content.setdefault(table, {}).update(changes)
    (run / "config.toml").write_text(tomli_w.dumps(content))


def call(*words: object) -> object:
    return CliRunner().invoke(cli, [str(word) for word in words])


COMMANDS = {
    "export": ("export", "RUN", "--format", "safetensors"),
    "export original": ("export", "RUN", "--solution", "original", "--format", "safetensors"),
    "bench": ("bench", "RUN", "--runs", 1, "--batch", 1),
    "finetune": ("finetune", "RUN", "--candidate", 1, "--epochs", 1, "--quiet"),
    "resume": ("resume", "RUN", "--quiet"),
}


def command(name: str, run: Path) -> list[object]:
    if name == "resume":
        (run / "light.safetensors").unlink()  # so that there is something to go on with
    return [run if word == "RUN" else word for word in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("signed", [True, False])
def test_a_foreign_folder_runs_no_shell_command(name: str, signed: bool, run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    edit(run, "model", spec="os:system", options={"command": f"touch {marker}"})
    if not signed:
        content = parse_toml((run / "config.toml").read_text())
        del content["signature"]
        (run / "config.toml").write_text(tomli_w.dumps(content))
    words = command(name, run)
    refused = call(*words)
    assert isinstance(refused.exception, RunError)
    assert "names code to run (model 'os:system')" in str(refused.exception)
    assert not marker.exists()
    call(*words, "--trust-run")  # shows that the attack would work
    assert marker.exists()


@pytest.mark.parametrize("name", ["report", "watch", "compare", "evaluate"])
def test_other_commands_run_nothing_of_a_folder(name: str, run: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    edit(run, "model", spec="os:system", options={"command": f"touch {marker}"})
    edit(run, "data", data="os:getcwd")
    edit(run, "code", folder=str(tmp_path))
    for module in ("click", "json", "torch", "onnxruntime", "onnx"):
        (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')")
    base = run / "finetune" / "original.safetensors"
    words = {
        "report": ("report", run),
        "watch": ("watch", run, "--port", 1, "--host", "203.0.113.1", "--no-open"),  # ends at once
        "compare": ("compare", "resnet20", "--weights", base, "--match", run, "--methods", "l1"),
        "evaluate": ("evaluate", "resnet20", "--weights", run / "knee.safetensors"),
    }
    before = list(sys.path)
    call(*words[name])
    assert not marker.exists()
    assert str(tmp_path) not in [entry for entry in sys.path if entry not in before]


@pytest.mark.parametrize(
    ("table", "changes", "kind"),
    [
        ("data", {"data": "evil.py:load"}, "data"),
        ("objective", {"spec": "evil.py:weigh"}, "objective"),
        ("model", {"options": {"num_classes": 3}}, "model"),
        ("code", {"folder": "/elsewhere"}, "model"),
        ("run", {"backend": "ray", "ray_address": "ray://evil.example:1"}, "ray-address"),
    ],
)
def test_whatever_leads_to_code_is_part_of_the_signature(
    run: Path, table: str, changes: dict[str, object], kind: str
) -> None:
    (run / "light.safetensors").unlink()
    edit(run, table, **changes)
    refused = call("resume", run)
    assert isinstance(refused.exception, RunError)
    assert kind in str(refused.exception).split("(")[1].split(")")[0]


def test_a_file_beside_the_config_is_code_as_well(run: Path, tmp_path: Path) -> None:
    (run / "net.py").write_text(f"def make(): open({str(tmp_path / 'executed')!r}, 'w')")
    edit(run, "model", spec=f"{os.path.relpath(run)}/net.py:make")
    assert isinstance(call("export", run).exception, RunError)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "bench" else name for name in COMMANDS]
)
def test_ones_own_run_needs_no_further_word(name: str, run: Path) -> None:
    done = call(*command(name, run))
    assert done.exit_code == 0, done.output


def test_code_may_be_named_again(run: Path, finished_run: Path) -> None:
    edit(run, "model", spec="os:system")
    spec = f"{finished_run.parent / 'nets.py'}:tiny"
    done = call("export", run, "--format", "safetensors", "--model", spec)
    assert done.exit_code == 0, done.output
    assert read_network(run, "knee", spec=spec).name == "knee"
    with pytest.raises(RunError, match="--trust-run"):
        read_network(run, "knee")
    (run / "light.safetensors").unlink()
    done = call("resume", run, "--model", spec, "--quiet")
    assert done.exit_code == 0, done.output


def test_named_data_and_zoo_networks_are_not_code(tmp_path: Path) -> None:
    assert code_in({"model": {"spec": "resnet20"}, "data": {"data": "cifar10"}}) == {}
    with RunFolder.create(tmp_path / "run", {"model": {"spec": "resnet20"}, "data": {"data": "digits"}}):
        pass
    assert "signature" not in (tmp_path / "run" / "config.toml").read_text()
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        Vouched().check(run, "model", "data", "objective", "ray-address")


@pytest.mark.parametrize("trusted", [False, True])
def test_the_config_of_a_foreign_run_does_not_run_its_code(run: Path, tmp_path: Path, trusted: bool) -> None:
    marker = tmp_path / "executed"
    edit(run, "model", spec="os:system", options={"command": f"touch {marker}"})
    words = ["prune", "--config", run / "config.toml", "--out", tmp_path / "new"]
    done = call(*words, *(["--trust-run"] if trusted else []))
    assert marker.exists() is trusted
    assert isinstance(done.exception, RunError) is not trusted


def test_the_key_is_private_and_another_key_signs_otherwise(tmp_path: Path, monkeypatch) -> None:
    config = {"model": {"spec": "net.py:make"}}
    signature = sign(config)
    key = state_folder() / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == KEY_BYTES
    assert is_signed(config, signature)
    assert not is_signed({"model": {"spec": "net.py:other"}}, signature)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert not is_signed(config, signature)
    assert sign(config) != signature
    (state_folder() / "key").write_bytes(b"short")
    assert sign(config) is None
    assert not is_signed(config, "é")


@pytest.mark.slow
def test_a_home_that_cannot_be_written_does_not_stop_a_run(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # a file: no folder can be made in it
    spec, weights = trained(tmp_path)
    done = call("prune", *arguments(spec, weights, tmp_path / "run", "--quiet"))
    assert done.exit_code == 0, done.output
    (tmp_path / "run" / "light.safetensors").unlink()
    refused = call("resume", tmp_path / "run")
    assert "could not be written" in str(refused.exception)
    assert "--trust-run" in str(refused.exception)
    done = call("resume", tmp_path / "run", "--trust-run", "--quiet")
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_keys_drawn_at_once_are_one(tmp_path: Path) -> None:
    script = (
        "import sys; from deeppruning.runs.trust import sign; "
        "sys.stdin.read(1); print(sign({'model': {'spec': 'a:b'}}))"
    )
    state = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", script]
    started = [subprocess.Popen(command, env=state, **pipes) for _ in range(4)]
    signatures = {process.communicate("x")[0] for process in started}
    assert len(signatures) == 1
    assert [path.name for path in (tmp_path / "deeppruning").iterdir()] == ["key"]
