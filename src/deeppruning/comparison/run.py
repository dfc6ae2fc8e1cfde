"""The comparison itself: all methods propose networks, which are fine-tuned alike; each step is on disk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from deeppruning.backends import Outcome
from deeppruning.comparison.prepare import ComparisonPlan
from deeppruning.comparison.problem import (
    Clock,
    Contexts,
    Method,
    Network,
    Problem,
    Work,
    Workers,
    call,
    kind_of_call,
)
from deeppruning.comparison.results import (
    OURS,
    Comparison,
    MethodDone,
    Row,
    Search,
    hypervolume,
    read_comparison,
)
from deeppruning.errors import DAMAGE, Diverged, InputError, RunError
from deeppruning.genome import Genome
from deeppruning.jobs.finetuning import Finetuning, Tuned
from deeppruning.jobs.rounds import Round, RoundDone, run_round
from deeppruning.roles import ROLES, candidate_name
from deeppruning.runs import History, RunFolder
from deeppruning.searching.candidate import Context
from deeppruning.searching.task import Classification
from deeppruning.system.device import torch_threads
from deeppruning.system.files import folder_within, write_atomically
from deeppruning.training.tensors import read_tensors, write_tensors

RESULTS = "results.json"


@dataclass(frozen=True, eq=False)
class Proposal:
    """The networks of one method, one per target, with their test errors as proposed and the time it took.

    A network that failed, or with outputs that are not finite, has no error.
    """

    networks: tuple[Network, ...]
    errors: tuple[float | None, ...]
    seconds: float


def write_proposal(path: Path, proposal: Proposal) -> None:
    """Write a proposal, whole or not at all."""
    tensors = {}
    for place, network in enumerate(proposal.networks):
        tensors[f"{place}/genome"] = torch.from_numpy(network.genome.astype(np.uint8))
        for name, tensor in (network.weights or {}).items():
            tensors[f"{place}/weights/{name}"] = tensor
    facts = {"errors": json.dumps(proposal.errors), "seconds": json.dumps(proposal.seconds)}
    facts["failures"] = json.dumps([network.failure for network in proposal.networks])
    write_tensors(path, tensors, facts)


def read_proposal(path: Path) -> Proposal | None:
    """The proposal in a file, None if there is no file."""
    if not path.exists():
        return None
    advice = "delete it and repeat the comparison, which then asks the method again"
    tensors, facts = read_tensors(path, error=RunError, advice=advice)
    try:
        errors = tuple(None if error is None else float(error) for error in json.loads(facts["errors"]))
        failures = json.loads(facts["failures"])
        networks = [
            _network_in_proposal(place, tensors, str(failures[place])) for place in range(len(errors))
        ]
        return Proposal(tuple(networks), errors, float(json.loads(facts["seconds"])))
    except DAMAGE as error:
        raise RunError(f"{path} is not a whole proposal ({error}); {advice}") from error


def _network_in_proposal(place: int, tensors: Mapping[str, Tensor], failure: str) -> Network:
    """The network at a place of a proposal file."""
    genome: Genome = tensors[f"{place}/genome"].numpy().astype(np.bool_)
    start = f"{place}/weights/"
    weights = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    return Network(genome, weights or None, failure)


def compare_methods(plan: ComparisonPlan, run: RunFolder) -> Comparison:
    """Ask every method with every seed and fine-tune its networks; steps that are on disk are not repeated.

    Methods and seeds of an earlier call on the same folder stay in the result.
    """
    asked: list[Method | None] = [*((None,) if plan.match else ()), *plan.methods]
    steps = plan.seeds * len(asked)
    comparison: Comparison | None = None
    for seed in range(plan.seeds):
        contexts = plan.contexts.with_seed(plan.contexts.plain.seed + seed)
        with plan.job.backend.open(call, contexts, kind=kind_of_call) as workers:
            step = _Step(plan, run, contexts, workers, seed)
            comparison = comparison or step.begin()
            for place, method in enumerate(asked, start=1):
                rows, search = step.run(method)
                comparison = comparison.with_results(
                    rows, search, "searches" if method is None else method.kind
                )
                text = json.dumps(comparison.to_table(), indent=1)
                write_atomically(run.path / RESULTS, text.encode())
                done = seed * len(asked) + place
                plan.observer(MethodDone(rows[0].method, seed, done, steps, tuple(rows)))
    assert comparison is not None
    return comparison


def error_as_proposed(context: Context, network: Network) -> float | None:
    """The test error of a network as it was proposed; None if its outputs are not finite."""
    if network.failure:
        return None
    thin = context.graph.prune(network.genome)
    if network.weights is not None:
        thin.load_state_dict(network.weights)
    try:
        return context.task.test_error(thin)
    except Diverged:
        return None


@dataclass(frozen=True, eq=False)
class _Step:
    """All steps of one seed."""

    plan: ComparisonPlan
    run_folder: RunFolder
    contexts: Contexts
    workers: Workers
    seed: int

    @property
    def context(self) -> Context:
        """The context in which networks are tested and fine-tuned."""
        return self.contexts.plain

    def begin(self) -> Comparison:
        """The results of earlier calls, or none but the original's error."""
        if (results := self.run_folder.path / RESULTS).exists():
            return read_comparison(results)
        full = self.context.graph.full_genome()
        with History(self._history_file(OURS)) as history:
            (error,) = self._problem_for_method(history, Clock()).map(error_as_proposed, [Network(full)])
        if error is None:
            raise InputError(
                "the network has outputs on the test images that are not finite (nan or inf): there is "
                "nothing to compare; check its weights and the values of the images"
            )
        return Comparison(self.plan.targets, error, self.context.graph.flops(full))

    def run(self, method: Method | None) -> tuple[list[Row], Search | None]:
        """Rows of one method, None standing for the picks of the run that was matched."""
        name = OURS if method is None else method.name
        path = self._comparison_folder("proposals") / f"{name}-seed-{self.seed}.safetensors"
        proposal = read_proposal(path)
        if proposal is None:
            proposal = self._propose_networks(name, method)
            write_proposal(path, proposal)
            proposal = read_proposal(path)  # as a resumed comparison would read it
            assert proposal is not None
        errors, seconds = self._finetune_proposal(name, proposal)
        graph = self.context.graph
        rows = [
            Row(
                method=name,
                seed=self.seed,
                target=target.name,
                flops=graph.flops(network.genome),
                params=graph.params(network.genome),
                error_before=before,
                error_after=errors.get(place),
                select_seconds=proposal.seconds / len(self.plan.targets),
                finetune_seconds=seconds.get(place, 0.0),
            )
            for place, (target, network, before) in enumerate(
                zip(self.plan.targets, proposal.networks, proposal.errors, strict=True)
            )
        ]
        return rows, self._search_quality(name, method, proposal.seconds)

    def _propose_networks(self, name: str, method: Method | None) -> Proposal:
        """Ask a method for its networks, or take the selected networks of the matched run."""
        clock = Clock()
        match = self.plan.match
        with History(self._history_file(name)) as history, torch_threads(self.plan.job.search.threads):
            if match is not None and name == match.method and self.seed == 0:
                match.copy_search(history)
            problem = self._problem_for_method(history, clock)
            if method is not None:
                networks = method.propose(problem, self.plan.targets)
                seconds = clock.seconds()
            else:  # the picks of the matched run as it hands them to fine-tuning
                assert match is not None
                networks = [match.picks[role] for role in ROLES]
                networks = problem.refitted(pick.genome for pick in networks) if match.refits else networks
                seconds = clock.seconds() + sum(evaluation.seconds for evaluation in match.evaluated)
            return Proposal(tuple(networks), tuple(problem.map(error_as_proposed, networks)), seconds)

    def _problem_for_method(self, history: History, clock: Clock) -> Problem:
        job = self.plan.job
        return Problem(job.model, self.contexts, job.search, self.workers, history, clock)

    def _history_file(self, name: str) -> Path:
        return self._comparison_folder("searches") / f"{name}-seed-{self.seed}.sqlite"

    def _comparison_folder(self, name: str) -> Path:
        return folder_within(self.run_folder.path, self.run_folder.path / name)

    def _search_quality(self, name: str, method: Method | None, seconds: float) -> Search | None:
        """The hypervolume of what a method has searched; None where it has not searched."""
        with History(self._history_file(name)) as history:
            evaluations = history.evaluations()
        if not evaluations:
            return None
        full = self.context.graph.flops(self.context.graph.full_genome())
        costs = self.context.graph.flops(np.array([evaluation.genome for evaluation in evaluations])) / full
        errors = (evaluation.error for evaluation in evaluations)
        points = [(error, cost) for error, cost in zip(errors, costs, strict=True) if error is not None]
        by_refit = method is not None and method.judges_by_refit
        task = (self.contexts.refitting if by_refit else self.contexts.plain).task
        assert isinstance(task, Classification)
        return Search(name, self.seed, len(evaluations), hypervolume(points), task.search.evaluation, seconds)

    def _finetune_proposal(self, name: str, proposal: Proposal) -> tuple[dict[int, float], dict[int, float]]:
        """Fine-tune the networks of a proposal: their test errors and seconds, by place."""
        variant = f"{name}-seed-{self.seed}"
        networks = {place: network for place, network in enumerate(proposal.networks) if not network.failure}
        genomes = {place: network.genome for place, network in networks.items()}
        roles = {place: (name, target.name) for place, target in enumerate(self.plan.targets)}
        starts = {
            place: save(network.weights) for place, network in networks.items() if network.weights is not None
        }
        task = self.context.task
        assert isinstance(task, Classification)
        assert task.tuning is not None
        seed = task.tuning.seed + self.seed
        tuning = Finetuning(self.run_folder, self.context, self.plan.observer, seed, variant)

        def submit(rounds: Iterable[tuple[int, Round]]) -> Iterator[Outcome[int, RoundDone]]:
            return self.workers.map((place, Work(run_round, item)) for place, item in rounds)

        tuned = tuning.train(submit, genomes, roles, starts)
        tuning.forget_answers()
        for place, outcome in tuned.items():
            if isinstance(outcome, RunError):
                raise RunError(f"fine-tuning of {', '.join(roles[place])} failed:\n{outcome}")
        seconds = {
            place: sum(
                row.seconds for row in self.run_folder.history.epochs(f"{candidate_name(place)}/{variant}")
            )
            for place in genomes
        }
        errors = {place: done.test_error for place, done in tuned.items() if isinstance(done, Tuned)}
        return {place: float(error) for place, error in errors.items() if error is not None}, seconds
