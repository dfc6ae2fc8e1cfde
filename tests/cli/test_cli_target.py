"""Targets on the command line: asked for in a search, repeated from a file, and picked afterwards."""

import re
import shutil

import pytest
from click.testing import CliRunner

from cli_calls import call
from cli_search import guided_arguments, trained
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.options.config_file import read_options
from deeppruning.errors import InputError, RunError
from deeppruning.exporting import read_network
from deeppruning.reporting.data import collect
from deeppruning.runs import RunFolder, facts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with two limits, and what the command printed."""
    folder = tmp_path_factory.mktemp("cli-target")
    spec, weights = trained(folder)
    limits = ("--target", "flops=40%", "--target", "params=70%,error=+100%")
    done = call("prune", *guided_arguments(spec, weights, folder / "run", *limits))
    return folder / "run", done.output


def test_the_search_is_told_its_limits_and_shows_what_it_found(run):
    folder, printed = run
    with RunFolder.open(folder, read_only=True) as opened:
        assert opened.config["target"] == {"flops": "40%", "params": "70%", "error": "+100%"}
        known = opened.history.get_fact(facts.TARGET)
        figures = opened.history.get_fact(facts.solution_fact("target"))
        original = opened.history.get_fact(facts.ORIGINAL_FIGURES)
    assert known["met"] and figures["id"] == known["id"]
    assert figures["flops"] <= 0.4 * original["flops"] and figures["params"] <= 0.7 * original["params"]
    assert "a tenth of the training images is held out" in printed
    assert printed.count(f"target {known['asked']}: met by candidate {known['id']}: flops") == 1
    table = printed.split("\nnetwork ")[1].splitlines()[2:6]
    assert [line.split()[0] for line in table] == ["heavy", "knee", "light", "target"]


@pytest.mark.slow
def test_whoever_reads_the_run_copes_with_a_fourth_solution(run):
    folder, _ = run
    data = collect(folder)
    assert [entry["role"] for entry in data["solutions"]] == ["heavy", "knee", "light", "target"]
    assert "target" in data["commands"]["load"]
    assert read_network(folder, "target", trust_run=True).metadata["role"] == "target"
    done = call("export", folder, "--solution", "target", "--format", "safetensors")
    assert "target.safetensors" in done.output
    assert "target" in call("resume", folder).output
    assert "target" in call("bench", folder, "--runs", 1, "--batch", 1).output


def test_the_runs_own_file_asks_for_the_same_again(run):
    folder, _ = run
    options = read_options(folder / "config.toml", prune)
    assert options["target"] == ["flops=40%", "params=70%", "error=+100%"] and options["focus"] > 0


@pytest.mark.slow
def test_a_second_target_stands_beside_the_first(run, tmp_path):
    again = tmp_path / "run"
    shutil.copytree(run[0], again)
    done = call("pick", again, "--target", "flops=60%")
    assert "target-2 flops=60%: met by candidate" in done.output and "target-2.safetensors" in done.output
    assert "target-2" in call("bench", again, "--runs", 1, "--batch", 1).output
    assert "target-2" in call("export", again, "--solution", "target-2", "--format", "safetensors").output
    shown = call("resume", again).output
    assert (
        "target-2 flops=60%: met by" in shown
        and "\ntarget flops=40%, params=70%, error=+100%: met by" in shown
    )
    with pytest.raises(RunError, match="has no target-3 network; choose one: "):
        call("export", again, "--solution", "target-3")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--max-flops", "flops=40%"),
        ("--flops", "flops=40%"),
        ("--max-parameters", "params=30%"),
        ("--max-latency-ms", "latency=5ms"),
        ("--max-error", r"error=\+1%"),
    ],
)
def test_flags_that_people_try_are_answered_with_the_target(flag, meant):
    refused = CliRunner().invoke(prune, ["resnet20", flag, "0.4"])
    assert refused.exit_code == 2 and re.search(f"Did you mean --target {meant}", refused.output)


def test_other_unknown_flags_are_answered_as_ever():
    refused = CliRunner().invoke(prune, ["resnet20", "--offsprings", "4"])
    assert refused.exit_code == 2 and "--offspring" in refused.output


@pytest.mark.parametrize("target", ["flops=140%", "speed=3", "flops=nan"])
def test_nonsense_is_refused_before_anything_is_done(tmp_path, target):
    with pytest.raises(InputError, match="target"):
        call("prune", "resnet20", "--out", tmp_path / "run", "--target", target)
    assert not (tmp_path / "run").exists()
