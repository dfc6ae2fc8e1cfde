"""Methods whose networks are refitted: the same genomes, other weights, nothing trained."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deeppruning as dp
from deeppruning.comparison import METHODS, Comparison, Method, Network, register_method
from deeppruning.comparison.methods.ranking import WithRefit
from deeppruning.comparison.problem import Problem, Target, Work, kind_of_call, refit_network
from deeppruning.comparison.run import error_as_proposed, read_proposal
from deeppruning.data.batches import normalize
from deeppruning.errors import InputError
from deeppruning.refitting import refit
from deeppruning.searching.candidate import FINAL_REFERENCE
from deeppruning.searching.importance import CRITERIA, register_criterion
from deeppruning.searching.importance.criteria import Criterion
from deeppruning.training.loop import fit
from rival_helpers import make_problem
from search_helpers import TinyNet, digits, quick_finetune, quick_search, tiny_net


@cache
def trained() -> TinyNet:
    """A network that knows something of digits, so that there is something to lose."""
    model, (train, _) = tiny_net(), digits()
    fit(model, train, dp.TrainConfig(epochs=15, lr=0.1, crop=0, flip=False, batch_size=20), device="cpu")
    return model


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return make_problem(trained(), tmp_path_factory.mktemp("refit"))


def half(problem: Problem) -> list[Target]:
    return [Target("half", problem.graph.flops(problem.graph.full_genome()) // 2)]


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].refittable])
def test_the_genome_is_that_of_the_method_bit_for_bit(problem: Problem, name: str) -> None:
    (plain,) = METHODS[name].propose(problem, half(problem))
    (refitted,) = METHODS[f"{name}+refit"].propose(problem, half(problem))
    assert np.array_equal(plain.genome, refitted.genome)
    assert refitted.weights is not None
    wanted = refit(
        problem.graph, plain.genome, normalize(problem.sample.images, problem.sample.normalization)
    )
    for key, value in wanted.state_dict().items():
        assert torch.equal(value, refitted.weights[key])


def test_a_refit_is_worth_something_without_any_training(problem: Problem) -> None:
    (plain,) = METHODS["l1"].propose(problem, half(problem))
    (refitted,) = METHODS["l1+refit"].propose(problem, half(problem))
    before, after = (error_as_proposed(problem.context, one) for one in (plain, refitted))
    assert before is not None
    assert after is not None
    assert after < before - 0.1


def test_only_the_second_context_refits_and_is_made_once(problem: Problem) -> None:
    contexts = problem.contexts
    assert contexts.plain.task.refit_inputs() is None
    assert problem.task.search.evaluation == "finetune"  # the comparison's own is refit
    assert problem.task.parts == (problem.sample, problem.sample)
    assert contexts.refitting is contexts.refitting
    assert problem.by_refit().context.reference(final=True) is contexts.refitting.reference(final=True)
    assert contexts.plain.reference(final=True) is None
    assert contexts.with_seed(7).plain.seed == contexts.with_seed(7).refitting.seed == 7
    kinds = {kind_of_call(Work(refit_network, None, refits)) for refits in (False, True)}
    assert len(kinds) == 2  # limits of time are learnt for each


def test_weights_that_give_nothing_finite_are_a_failure(tmp_path: Path) -> None:
    model = trained()
    problem = make_problem(model, tmp_path)
    genome = METHODS["l1"].propose(problem, half(problem))[0].genome
    context = problem.contexts.refitting
    reference = context.reference(final=True)
    assert reference is not None
    broken = replace(reference, parts=[((args[0] * torch.nan,), kwargs) for args, kwargs in reference.parts])
    context._cache[FINAL_REFERENCE] = broken
    network = refit_network(context, genome)
    assert "not finite" in network.failure
    assert network.weights is None
    assert error_as_proposed(problem.context, network) is None


def test_new_criteria_and_methods_get_theirs() -> None:
    before = dict(METHODS._entries), dict(CRITERIA._entries)
    try:

        @register_criterion
        class Largest(Criterion):
            """The largest weight."""

            name = "largest"

            def scores(self, evidence: Any) -> Any:
                return np.ones(evidence.graph.num_genes)

        found = [name for name in METHODS if name.startswith("largest")]
        assert found == ["largest", "largest+refit"]
        assert METHODS["largest+refit"].kind == "criteria with refit"

        def define() -> None:
            @register_method
            class Mine(Method):
                """All of it."""

                name = "mine"
                refittable = True

                def propose(self, problem: Problem, targets: Any) -> list[Network]:
                    return [Network(problem.graph.full_genome()) for _ in targets]

        define()
        first = METHODS["mine+refit"]
        define()  # as notebooks do
        assert isinstance(first, WithRefit)
        assert METHODS["mine+refit"] is not first
        assert METHODS["mine+refit"].kind == "others"
    finally:
        METHODS._entries, CRITERIA._entries = before


def compare(folder: Path, **options: Any) -> Comparison:
    train, test = digits()
    usual: dict[str, Any] = {"shares": (0.5,), "search": quick_search(), "finetune": quick_finetune(epochs=1)}
    return dp.compare(trained(), train, test, run_dir=folder, **{"workers": 1, **usual, **options})


def test_fine_tuning_starts_from_the_refit(tmp_path: Path) -> None:
    found = compare(tmp_path / "a", methods="l1,l1+refit", finetune=quick_finetune(epochs=0))
    rows = {row.method: row for row in found.rows}
    assert rows["l1"].flops == rows["l1+refit"].flops
    for row in rows.values():  # nothing is trained, and nothing refitted on the way
        assert row.error_after == row.error_before
    assert rows["l1"].error_after != rows["l1+refit"].error_after
    assert found.kinds == {"l1": "criteria", "l1+refit": "criteria with refit"}
    proposal = read_proposal(tmp_path / "a" / "proposals" / "l1+refit-seed-0.safetensors")
    assert proposal is not None
    assert proposal.networks[0].weights is not None


def test_a_sample_that_is_too_small_is_refused_before_any_work(tmp_path: Path) -> None:
    for method, least in (("l1+refit", 16), ("random-widths", 32)):
        search = quick_search(sample=10, evaluation="recalibrate")
        with pytest.raises(
            InputError, match=rf"{method.replace('+', '.')} needs a sample of at least {least}"
        ):
            compare(tmp_path / "a", methods=method, search=search)
    assert not (tmp_path / "a").exists()
