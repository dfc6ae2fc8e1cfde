"""The record of a row says what its run recorded, with commands that repeat it and no word of the machine."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_calls import call
from cli_search import guided_arguments, trained
from collect import collect, write_record
from commands import prune_command
from deeppruning.errors import InputError, RunError
from deeppruning.models.registry import describe_model
from deeppruning.runs import RunFolder
from report_runs import make_run
from row_options import RowOptions, row_file
from search_helpers import digits
from table import page_text, read_paper

pytestmark = pytest.mark.slow  # it makes a run, for tools that only make tables


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guided search that trains nothing; then its target is trained, and the same from re-drawn weights."""
    folder = tmp_path_factory.mktemp("row")
    spec, weights = trained(folder)
    more = ("--finetune-epochs", 0, "--target", "flops=60%", "--quiet")
    call("prune", *guided_arguments(spec, weights, folder / "run", *more))
    with RunFolder.open(folder / "run", read_only=True) as opened:
        id_ = opened.history.facts()["solution/target"]["id"]
    for extra in (("--epochs", 2), ("--epochs", 1, "--from-scratch", "--lr", 0.1)):
        call("finetune", folder / "run", "--candidate", id_, *extra, "--quiet")
    return folder / "run"


@pytest.fixture(scope="module")
def record(run: Path) -> dict[str, Any]:
    """Its record, as it is read back."""
    path = write_record(collect([run], "tiny"), run.parent / "records")
    assert path.name == "tiny.json" and path.stat().st_size < 20_000
    return json.loads(path.read_text())


def networks(record: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [one for one in record["runs"][0]["networks"] if role in one["roles"]]


def test_figures_are_those_of_the_history(run: Path, record: dict[str, Any]) -> None:
    with RunFolder.open(run, read_only=True) as opened:
        facts, candidates = opened.history.facts(), opened.history.candidates()
        epochs = opened.history.epochs()
    (found,) = record["runs"]
    assert found["candidates"] == [[row.id, row.generation, row.flops, row.train_error] for row in candidates]
    assert {name: found["original"][name] for name in facts["original"]} == facts["original"]
    assert found["search_seconds"] == sum(row.evaluated.seconds for row in candidates)
    assert found["finetune_seconds"] == sum(row.seconds for row in epochs)
    assert (found["seed"], found["versions"], found["test_images"]) == (0, facts["versions"], 360)
    for role in ("heavy", "knee", "light", "target"):
        untrained, figures = networks(record, role)[0], facts[f"solution/{role}"]
        told = [untrained[key] for key in ("candidate", "epochs", "test_error", "flops", "params")]
        assert told == [figures["id"], 0, figures["test_error"], figures["flops"], figures["params"]]
        assert untrained["flops_left"] == pytest.approx(100 * (1 - figures["flops_pruned"]))
        assert untrained["latency_ms"] == pytest.approx(1000 * facts["latency_batch_1"][role])
    assert set(found["front"]) <= {row.id for row in candidates} and found["front"]


def test_a_second_training_is_told_by_its_last_epoch(run: Path, record: dict[str, Any]) -> None:
    untrained, *further = networks(record, "target")
    with RunFolder.open(run, read_only=True) as opened:
        rows = [opened.history.epochs(one["training"]) for one in further]
    assert [one["epochs"] for one in further] == [sum(row.epoch > 0 for row in epochs) for epochs in rows]
    assert [one["test_error"] for one in further] == [epochs[-1].test_error for epochs in rows]
    assert {one["untrained_error"] for one in further} == {untrained["test_error"]}
    start = f"deeppruning finetune runs/tiny --candidate {untrained['candidate']} --epochs"
    commands = {one["options"]["from_scratch"]: one["command"] for one in further}
    assert commands == {False: f"{start} 2", True: f"{start} 1 --lr 0.1 --from-scratch"}


def test_the_command_asks_for_the_options_of_the_run(run: Path, record: dict[str, Any]) -> None:
    program, name, *words = shlex.split(record["runs"][0]["command"])
    assert (program, name, words[0]) == ("deeppruning", "prune", "nets.py:tiny")
    again, options = RowOptions.read(*words), record["runs"][0]["options"]
    aimed = ("focus", "low", "high")  # by the target
    wanted = {key: value for key, value in options["search"].items() if key not in aimed}
    found = json.loads(json.dumps(again.search.to_table()))
    assert {key: found[key] for key in wanted} == wanted
    assert again.finetune.to_table() == options["finetune"]
    assert str(again.target) == "flops=60%"


def test_the_page_shows_what_is_recorded(record: dict[str, Any]) -> None:
    text = page_text(read_paper(), [record], "")
    untrained, *further = networks(record, "target")
    finetuned, redrawn = sorted(further, key=lambda one: -one["epochs"])
    before, after, anew = (f"{100 * one['test_error']:.2f} %" for one in (untrained, finetuned, redrawn))
    cut = f"{100 - untrained['flops_left']:.2f} %"
    pick = f"({untrained['candidate']}) | ours, guided"
    assert f"| target {pick} | {after} ({before} untrained) | {cut} |" in text
    assert f", weights re-drawn {pick} | {anew} | {cut} |" in text
    assert "\n".join(one["command"] for one in further) in text


@pytest.mark.parametrize("changes", [{}, {"seed": 3, "selection": "comma"}])
def test_a_run_by_the_file_of_its_row_says_so(changes: dict[str, Any]) -> None:
    name = "resnet20-paper-plus"
    row = RowOptions.read("--config", row_file(name))
    config = {
        "search": {**row.search.to_table(), "exclude": [], **changes},
        "finetune": row.finetune.to_table(),
        "model": {"spec": "resnet20", "weights": "/far/away/r20.th"},
        "data": {"data": "cifar10", "mean": list(row.mean or ()), "std": list(row.std or ())},
    }
    flags = "".join(f" --{key} {value}" for key, value in reversed(changes.items()))
    given = f"--config experiments/{name}.toml --weights r20.th{flags}"
    assert prune_command(config, name) == f"deeppruning prune {given} --out runs/{name}"


def test_no_path_of_the_machine_is_told(run: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record)
    assert str(run.parent) in (run / "config.toml").read_text()
    assert [part for part in (str(run.parent), '"/', " /", "'/", "/tmp", "/home") if part in text] == []
    assert record["runs"][0]["options"]["model"]["weights"] == "model.safetensors"


def test_a_run_is_only_read(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    collect([run, run], "twice")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_with_epochs_of_its_own_has_their_last_error(own_run: Path) -> None:
    (found,) = collect([own_run], "own")["runs"]
    with RunFolder.open(own_run, read_only=True) as opened:
        names = {one["training"] for one in found["networks"]}
        last = {name: opened.history.epochs(name)[-1].test_error for name in names}
    assert {one["training"]: one["test_error"] for one in found["networks"]} == last
    assert {one["epochs"] for one in found["networks"]} == {2} and found["front"] == []


def test_a_training_from_scratch_is_a_row_too(tmp_path: Path) -> None:
    spec, _ = trained(tmp_path)
    given = ["--data", "digits", "--epochs", 1, "--lr", 0.05]
    call("train", spec, *given, "--out", tmp_path / "net", "--quiet")
    (found,) = collect([tmp_path / "net"], "mobile")["runs"]
    (epoch,) = json.loads((tmp_path / "net" / "history.json").read_text())
    assert found["epochs"] == 1
    assert [found[key] for key in ("test_error", "seconds")] == [epoch["test_error"], epoch["seconds"]]
    named = "deeppruning train nets.py:tiny --data digits --image-size 8x8"
    (stage,) = found["stages"]
    assert stage["command"] == f"{named} --epochs 1 --lr 0.05 --out runs/net"


def test_a_training_on_growing_images_is_one_network(tmp_path: Path) -> None:
    small, large = tmp_path / "net-8", tmp_path / "net-12"
    few = digits(40, 20)[0]
    np.savez(tmp_path / "few.npz", images=few.images[:, 0].numpy(), labels=few.labels.numpy())
    given = ["--data", tmp_path / "few.npz", "--quiet"]
    call("train", "resnet20", *given, "--epochs", 1, "--out", small)
    weights = ["--image-size", 12, "--epochs", 1, "--weights", small / "model.safetensors"]
    call("train", "resnet20", *given, *weights, "--out", large)
    (found,) = collect([large, small], "grown")["runs"]
    epochs = [json.loads((path / "history.json").read_text()) for path in (small, large)]
    assert (found["run"], found["epochs"]) == ("net-12", 2)
    assert found["test_error"] == epochs[1][-1]["test_error"]
    assert found["seconds"] == pytest.approx(sum(one["seconds"] for part in epochs for one in part))
    assert found["flops"] == describe_model("resnet20", in_channels=1, image_size=12).flops
    assert found["params"] == describe_model("resnet20", in_channels=1).params
    commands = [stage["command"] for stage in found["stages"]]
    assert [command.rpartition(" ")[2] for command in commands] == ["runs/net-8", "runs/net-12"]
    assert "--weights runs/net-8/model.safetensors" in commands[1]
    assert str(tmp_path) not in json.dumps(found)


def test_trainings_of_one_name_are_refused(tmp_path: Path) -> None:
    for place in ("here", "there"):
        call(
            "train",
            "resnet20",
            "--data",
            "digits",
            "--epochs",
            0,
            "--out",
            tmp_path / place / "net",
            "--quiet",
        )
    with pytest.raises(InputError, match="the same name"):
        collect([tmp_path / "here" / "net", tmp_path / "there" / "net"], "twice")


def test_what_is_not_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not finished"):
        collect([make_run(tmp_path / "run", finished=False)], "early")


def test_a_record_is_written_nowhere_else(run: Path) -> None:
    with pytest.raises(InputError, match=r"got '\.\./x'"):
        collect([run], "../x")
