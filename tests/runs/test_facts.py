"""The facts of a run: named and typed in one place, and what is not of its shape is refused."""

import platform
from pathlib import Path

import pytest
import torch

import deeppruning as dp
from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.runs import History, RunFolder, facts
from deeppruning.system.versions import computed_by
from search_helpers import digits, quick_finetune, quick_search, tiny_net

FIGURES = {"id": 3, "train_error": 0.1, "test_error": None, "flops": 5, "flops_pruned": 0.5, "params": 7}


def test_a_fact_is_the_same_by_its_name_and_by_itself(tmp_path: Path) -> None:
    with History(tmp_path / "history.sqlite") as history:
        history.set_fact(facts.solution_fact("knee"), FIGURES)
        history.set_fact(facts.diverged_fact("candidate-3"), ["the loss is nan"])
        assert history.get_fact("solution/knee") == history.get_fact(facts.solution_fact("knee")) == FIGURES
        assert history.get_fact(facts.FINISHED) is None and history.get_fact(facts.FINISHED, False) is False
        assert sorted(history.facts()) == ["diverged/candidate-3", "solution/knee"]
        assert [facts.solution_role(key) for key in history.facts()] == [None, "knee"]


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        (facts.ORIGINAL_FIGURES, {"flops": 1}),
        (facts.solution_fact("knee"), {**FIGURES, "flops_pruned": "half"}),
        (facts.LAYERS, {"conv": ["0"]}),
        (facts.LATENCY, {"knee": None}),
        (facts.VERSIONS, "torch"),
    ],
    ids=lambda value: value.key if isinstance(value, facts.Fact) else "",
)
def test_a_value_of_another_shape_is_refused(tmp_path: Path, fact: facts.Fact, value: object) -> None:
    with History(tmp_path / "history.sqlite") as history:
        history.set_fact(fact, value)
        for read in (lambda: history.get_fact(fact), lambda: history.get_fact(fact.key), history.facts):
            with pytest.raises(RunError, match=f"the fact '{fact.key}'"):
                read()


@pytest.mark.slow
def test_a_run_says_what_it_was_computed_by(tmp_path: Path) -> None:
    run, (train, test) = tmp_path / "run", digits(40, 40)
    quick = quick_search(offspring=1, generations=1, sample=20)
    dp.prune(tiny_net(), train, test, run_dir=run, search=quick, finetune=quick_finetune(epochs=0), workers=1)
    shown = collect(run)["versions"]
    assert shown == computed_by()
    assert shown["torch"] == str(torch.__version__) and shown["python"] == platform.python_version()
    assert shown["processor"]
    with RunFolder.open(run) as opened:  # begun on another machine
        opened.history.set_fact(facts.VERSIONS, {**shown, "processor": "another"})
    dp.resume(run, tiny_net(), train, test, workers=1)
    assert collect(run)["versions"]["processor"] == "another"
