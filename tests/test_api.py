"""The calls from Python: every parameter is named in its signature, a misspelt one is refused by name."""

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import deeppruning as dp
from deeppruning.errors import InputError
from deeppruning.jobs.prepare import Setup

CALLS = {"prune": dp.prune, "resume": dp.resume, "finetune": dp.finetune, "compare": dp.compare}
AFTERWARDS = {"report": dp.report, "export": dp.export, "bench": dp.bench}
OF_CODE = {
    "task",
    "objective",
    "backend",
    "candidate_timeout",
    "example_input",
    "observer",
    "progress",
    "report",
}
# A comparison judges by classification, at equal FLOPs.
NOT_TAKEN = {
    "prune": set(),
    "resume": set(),
    "finetune": set(),
    "compare": {"task", "objective", "progress", "report"},
}


@pytest.mark.parametrize("name", CALLS)
def test_every_parameter_is_in_the_signature(name: str) -> None:
    parameters = inspect.signature(CALLS[name]).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert kinds.isdisjoint({inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL})
    assert OF_CODE - NOT_TAKEN[name] <= parameters.keys()
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters.values())


def test_prune_takes_all_that_a_setup_knows() -> None:
    known = {field.name for field in fields(Setup)}
    assert known <= inspect.signature(dp.prune).parameters.keys()


@pytest.mark.parametrize("name", CALLS | AFTERWARDS)
@pytest.mark.parametrize(("given", "meant"), [("worker", "workers"), ("devise", "device"), ("run_dirr", "")])
def test_a_misspelt_parameter_is_refused_with_the_nearest_one(
    name: str, given: str, meant: str, tmp_path: Path
) -> None:
    function = (CALLS | AFTERWARDS)[name]
    known = inspect.signature(function).parameters
    with pytest.raises(InputError) as caught:
        function(**{given: 1})
    message = str(caught.value)
    assert message.startswith(f"unknown parameter of {name} {given!r}")
    if meant in known:
        assert f"did you mean {meant}" in message
    assert message.endswith(", ".join(sorted(known)))


@pytest.mark.parametrize("name", [*CALLS, *AFTERWARDS, "search", "pick"])
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_parameter(name: str) -> None:
    function = getattr(dp, name)
    fitting = {"model": nn.Identity(), "run_dir": "nowhere", "candidate": 1, "target": "flops=40%"}
    parameters = inspect.signature(function).parameters
    needed = {key for key, one in parameters.items() if one.default is one.empty}
    checked = [key for key, one in parameters.items() if one.annotation is not Any]
    assert len(checked) > len(parameters) // 2
    for key in checked:
        given = {other: fitting.get(other) for other in needed} | {key: object()}
        with pytest.raises(
            InputError, match=f"^{key} must be an? .*, got <object .*object\\)$|^{key} must be True"
        ):
            function(**given)


def test_options_in_a_dict_are_answered_with_how_they_are_written() -> None:
    told = r"search must be a SearchConfig or None, got {'bins': 3} \(dict\); write SearchConfig\(name=value"
    with pytest.raises(InputError, match=told):
        dp.search(nn.Identity(), None, search={"bins": 3})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="graph must be a ChannelGraph, got None"):
        dp.refit(None, None, None)  # type: ignore[arg-type]


def test_what_is_missing_is_still_named_by_python() -> None:
    with pytest.raises(TypeError, match="run_dir"):
        dp.prune(None)  # type: ignore[call-arg,arg-type]


def test_names_and_help_are_shown_without_waiting_for_torch() -> None:
    program = (
        "import sys, deeppruning; from deeppruning.cli.main import cli; dir(deeppruning); "
        "cli(['--help'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "prune" in done.stdout


def test_public_names_are_listed_and_lead_somewhere() -> None:
    shown = [name for name in dir(dp) if not name.startswith("_")]
    assert shown == sorted(name for name in dp.__all__ if not name.startswith("_"))
    assert {"bench", "export", "finetune", "load", "prune", "report", "resume", "search"} <= set(shown)
    assert [name for name in dp.__all__ if getattr(dp, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'prun'"):
        dp.prun  # noqa: B018
