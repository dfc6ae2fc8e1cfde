"""`deeppruning prune`, `resume` and `finetune` on the digits: what they print, leave behind and refuse."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors import safe_open

from cli_calls import call
from cli_search import arguments, trained
from deeppruning.cli.commands.finetune import finetune
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.resume import resume
from deeppruning.cli.main import cli
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.reporting.data import collect

FIXTURES = Path(__file__).parent.parent / "fixtures"


def run(command, *given: object) -> Result:
    return call(*given, command=command)


def table_of(text: str) -> dict[str, list[str]]:
    """The rows of the final table by network."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if row and row[0] in ("original", "heavy", "knee", "light")}


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, str]:
    """A finished run of the tiny network and what was printed on the way."""
    folder = tmp_path_factory.mktemp("prune")
    model, weights = trained(folder)
    said = run(prune, *arguments(model, weights, folder / "run")).stdout
    return folder / "run", said


def test_prune_prints_lines_and_a_table_of_four(done):
    out, said = done
    lines = said.splitlines()
    assert lines[0].startswith("normalisation: recorded with the weights: mean 0.3060")
    assert "searching: 36 filter groups, 11 candidates, 25.50 k FLOPs, 2,942 parameters" in lines[4]
    assert lines[1:4] == ["reading the data", "analysing the network", "measuring the original"]
    assert sum(line.startswith("candidate ") for line in lines) == 11
    assert sum(line.startswith("generation ") for line in lines) == 2
    rows = table_of(said)
    assert list(rows) == ["original", "heavy", "knee", "light"]
    assert rows["original"][2:5] == ["25.50", "k", "-"] and rows["original"][-1] == "ms"
    assert all((out / f"{role}.safetensors").is_file() for role in ("heavy", "knee", "light"))
    config = (out / "config.toml").read_text()
    assert f'spec = "{out.parent}/nets.py:tiny"' in config
    # The page opens with the same words as the terminal ends with.
    shown = collect(out)
    assert f"\n{shown['verdict']}\n" in said
    export = f"export {out} --solution {shown['recommended']} --format onnx"
    assert (export in said) == shown["verdict"].startswith("Take ")
    assert 'data = "digits"' in config and "[finetune]\nepochs = 2\n" in config


def test_resume_of_a_finished_run_shows_the_table_again(done):
    out, said = done
    again = run(resume, out).stdout
    assert again.startswith(f"{out} is finished\n")
    assert table_of(again) == table_of(said)
    last = json.loads(run(resume, out, "--json").stdout)
    assert last["event"] == "finished"
    assert [row["network"] for row in last["networks"]] == ["original", "heavy", "knee", "light"]


def test_finetune_any_candidate(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "run")
    said = run(finetune, out, "--candidate", 3, "--epochs", 1).stdout
    assert "fine-tuning candidate-3  epoch 1/1" in said and "\ncandidate-3 " in said
    with safe_open(out / "candidate-3.safetensors", framework="pt") as file:
        metadata = file.metadata()
    with safe_open(out / "knee.safetensors", framework="pt") as file:
        assert metadata.keys() == file.metadata().keys()
    assert metadata["candidate"] == "3" and metadata["role"] == "candidate-3"
    assert f"report: {out / 'report.html'}" in said
    assert '"role":"candidate-3"' in (out / "report.html").read_text()
    with pytest.raises(InputError, match="no candidate 99; they run from 0 to 10"):
        run(finetune, out, "--candidate", 99)


def test_finetune_by_the_runs_options_equals_the_pick(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "run")
    with safe_open(out / "light.safetensors", framework="pt") as file:
        light = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        number = file.metadata()["candidate"]
    shutil.rmtree(out / "finetune")  # so that it is trained again, not found
    run(finetune, out, "--candidate", number, "--quiet")
    with safe_open(out / f"candidate-{number}.safetensors", framework="pt") as file:
        assert all(torch.equal(tensor, file.get_tensor(name)) for name, tensor in light.items())


def test_json_tells_every_event_and_nothing_else(tmp_path):
    model, _ = trained(tmp_path)
    objective = model.replace(":tiny", ":weigh")
    given = arguments(model, None, tmp_path / "run", "--train-epochs", 1, "--objective", objective)
    events = [json.loads(line) for line in run(prune, *given, "--json").stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["training", "trained"] and kinds[-1] == "finished"
    stages = [event["name"] for event in events[2 : kinds.index("started")]]
    assert stages == ["data", "graph", "original"]
    assert (kinds.count("candidate"), kinds.count("generation"), kinds.count("solution")) == (11, 2, 3)
    candidates = [event for event in events if event["event"] == "candidate"]
    # The user's function counts the weights of the thin network, which the graph does by arithmetic.
    assert all(event["cost"] == event["params"] and event["status"] == "ok" for event in candidates)
    assert (tmp_path / "run-base" / "model.safetensors").is_file()
    assert f'[objective]\nspec = "{objective}"' in (tmp_path / "run" / "config.toml").read_text()
    # Programs rely on these keys: none is ever taken out of the file.
    promised = json.loads((FIXTURES / "events.json").read_text())
    told = {kind: set.intersection(*({*each} for each in events if each["event"] == kind)) for kind in kinds}
    assert {
        kind: sorted({*keys} - told[kind]) for kind, keys in promised.items() if {*keys} - told[kind]
    } == {}


def test_quiet_prints_the_table_only(tmp_path):
    model, _ = trained(tmp_path)
    given = arguments(model, None, tmp_path / "run", "--train-epochs", 1, "--quiet")
    assert run(prune, *given).stdout.startswith("network   test error")


@pytest.mark.slow
def test_resnet20_without_weights_is_trained_first(tmp_path):
    given = ["resnet20", "--data", "digits", "--train-epochs", 1, "--offspring", 1, "--generations", 1]
    given += ["--sample", 50, "--evaluation", "recalibrate", "--finetune-epochs", 1, "--workers", 1]
    said = run(prune, *given, "--out", tmp_path / "run").stdout
    assert (
        "no --weights given" in said
        and f"training resnet20 first: 1 epochs, into {tmp_path}/run-base" in said
    )
    assert list(table_of(said)) == ["original", "heavy", "knee", "light"]
    assert "448 filter groups, 4 candidates, 2.52 M FLOPs" in said


def test_bad_input_is_explained(tmp_path, done):
    model, weights = trained(tmp_path)
    cases = {
        ("--selection", "pluss"): "did you mean plus",
        ("--backend", "locall"): "did you mean local",
        ("--objective", "flop"): "did you mean flops",
        ("--objective", "nowhere.py:cost"): "there is no file nowhere.py",
        ("--objective", f"{tmp_path}/nets.py:weight"): "did you mean weigh",
        ("--mutation", "2"): "mutation must lie in",
        ("--finetune-lr", "-1"): "lr must be at least 0",
        ("--device", "cudda"): "unknown device",
    }
    for given, message in cases.items():
        with pytest.raises(DeepPruningError, match=message):
            run(prune, *arguments(model, weights, tmp_path / "run", *given))
    with pytest.raises(RunError, match=r"already holds a run; continue it with `.*deeppruning resume"):
        run(prune, *arguments(model, weights, done[0]))
    with pytest.raises(RunError, match=r"has no config.toml|is not a folder"):
        run(resume, tmp_path / "nothing")
    assert not (tmp_path / "run").exists()


def test_weights_that_moved(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "run")
    (out / "knee.safetensors").unlink()  # so that there is something left to do
    config = (out / "config.toml").read_text()
    weights = done[0].parent / "base" / "model.safetensors"
    (out / "config.toml").write_text(config.replace(str(weights), str(tmp_path / "gone.safetensors")))
    with pytest.raises(RunError, match=r"at .*gone.safetensors.*--weights"):
        run(resume, out)
    run(resume, out, "--weights", weights)
    assert (out / "knee.safetensors").read_bytes() == (done[0] / "knee.safetensors").read_bytes()


def test_every_option_tells_its_default_and_the_papers_values():
    said = " ".join(CliRunner().invoke(cli, ["prune", "--help-all"]).stdout.split())
    for text in (
        "[10; paper: 20]",
        "[4; with --minutes, as many as they allow; paper: 10]",
        "[guided; paper: paper]",
        "[refit; paper: finetune]",
        "[true; paper: false]",
        "[0.1, the paper's value]",
        "found by a short trial for each network; paper: 0.01]",
        "[0.9; with --preset paper: 0.0]",
        "100 for CIFAR-100). [10; paper: 50]",
        "[constant]",
        "Example:",
    ):
        assert text in said
