"""Methods that search, when some or all of their candidates come to nothing."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from deeppruning.backends import InProcessBackend
from deeppruning.comparison.methods.searching import best_row
from deeppruning.comparison.problem import Contexts, Problem, Target, call, choose_methods
from deeppruning.errors import Diverged, RunError
from deeppruning.runs import Status
from deeppruning.searching.task import Classification, Judgement
from rival_helpers import make_problem
from search_helpers import quick_search, tiny_net


class Flaky(Classification):
    """Some candidates raise and some diverge, by their seeds; with `every` 1 all of them."""

    every = 3

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        if seed % self.every == 0:
            raise RuntimeError("out of luck")
        if seed % self.every == 1:
            raise Diverged("lost")
        return Judgement((seed % 1000) / 1000, (seed % 700) / 700)


class Hopeless(Flaky):
    every = 1


def problem_with(kind: type[Flaky], folder: Path) -> Problem:
    folder.mkdir()
    problem = make_problem(tiny_net(), folder, search=quick_search(offspring=9))
    task = problem.task
    own = kind(**{field.name: getattr(task, field.name) for field in fields(task) if field.init})
    contexts = Contexts(replace(problem.context, task=own))
    return replace(problem, contexts=contexts, workers=InProcessBackend().open(call, contexts))


BITS = ["es-plus", "es-comma", "random-search"]
WIDTHS = ["guided", "random-widths"]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in (*BITS[1:], *WIDTHS[1:])]


@pytest.mark.parametrize("name", [BITS[0], WIDTHS[0], *SLOW])
def test_searches_propose_none_of_those_that_failed(tmp_path: Path, name: str) -> None:
    problem = problem_with(Flaky, tmp_path / "some")
    (method,) = choose_methods(name)
    target = Target("half", problem.graph.flops(problem.graph.full_genome()) // 2)
    (network,) = method.propose(problem, [target])
    assert abs(problem.graph.flops(network.genome) / target.flops - 1) < 0.2  # filters are few here
    found = problem.history.evaluations()
    assert {row.status for row in found} == set(Status)
    assert all((row.error is None) == (row.status is not Status.OK) for row in found)
    with pytest.raises(RunError, match=r"\(\d+ failed\)"):
        method.propose(problem_with(Hopeless, tmp_path / "none"), [target])


def test_figures_and_their_absence(tmp_path: Path) -> None:
    problem = problem_with(Flaky, tmp_path / "some")
    genomes = problem.graph.repair(np.random.default_rng(0).random((12, problem.graph.num_genes)) < 0.6)
    values = problem.evaluate(genomes)
    known = [problem.history.evaluation(genome) for genome in genomes]
    for row, (error, flops) in zip(known, values, strict=True):
        assert row is not None
        expected = (row.error, row.flops) if row.status is Status.OK else (np.nan, np.nan)
        assert np.array_equal([error, flops], np.array(expected, dtype=float), equal_nan=True)
    assert np.array_equal(problem.evaluate(genomes), values, equal_nan=True)
    best = best_row(values, 1e12)
    assert values[best, 0] == np.nanmin(values[:, 0])
