"""The comparison itself: every method asked, every network fine-tuned alike, each step kept on disk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save
from torch import nn

from deeppruning.backends.base import Backend, Key, Outcome, Session
from deeppruning.comparison.contexts import Contexts
from deeppruning.comparison.events import MethodDone, RivalObserver
from deeppruning.comparison.problem import (
    Clock,
    Method,
    Network,
    Problem,
    Target,
    Work,
    Workers,
    call,
    kind_of_call,
)
from deeppruning.comparison.proposals import Proposal, file_name, read_proposal, write_proposal
from deeppruning.comparison.results import OURS, Comparison, Row, Search, hypervolume, read_comparison
from deeppruning.config import SearchConfig
from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.jobs.finetuning import Finetuning, Tuned
from deeppruning.jobs.rounds import Round, RoundDone, run_round
from deeppruning.roles import candidate_name
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.history import History
from deeppruning.runs.records import Evaluation
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import ignore
from deeppruning.searching.task import Classification
from deeppruning.system.device import torch_threads
from deeppruning.system.files import folder_within, write_atomically
from deeppruning.training.tensors import hash_tensors

RESULTS = "results.json"


@dataclass(frozen=True, eq=False)
class Rivalry:
    """All that a comparison needs; made by the Python interface."""

    model: nn.Module
    contexts: Contexts  # with the whole task, and the first seed
    search: SearchConfig
    backend: Backend
    methods: tuple[Method, ...]
    targets: tuple[Target, ...]
    seeds: int
    ours: tuple[Network, ...] = ()  # the picks of a run, where the comparison is matched to one
    ours_refit: bool = False  # whether this run refits its picks before it fine-tunes them
    evaluated: tuple[Evaluation, ...] = ()  # all that this run evaluated
    guide: Mapping[str, Any] | None = None  # what guided it, where something did
    same: str = ""  # the method that, with the first seed, is the search of this run once more
    observer: RivalObserver = ignore

    def data_fingerprint(self) -> str:
        """A hash of all images and labels: those judged on, trained on and tested on."""
        task = self.contexts.plain.task
        assert isinstance(task, Classification)
        sets = {"sample": task.sample, "train": task.train, "test": task.test}
        tensors = {
            f"{name}/{part}": tensor
            for name, images in sets.items()
            if images is not None
            for part, tensor in images.key_tensors().items()
        }
        return hash_tensors(tensors)


def compare_methods(rivalry: Rivalry, run: RunFolder) -> Comparison:
    """Ask every method with every seed and fine-tune what it proposes; what is on disk is not done again.

    Methods and seeds of an earlier call on the same folder stay in the result.
    """
    asked: list[Method | None] = [*((None,) if rivalry.ours else ()), *rivalry.methods]
    steps = rivalry.seeds * len(asked)
    comparison: Comparison | None = None
    for seed in range(rivalry.seeds):
        contexts = rivalry.contexts.with_seed(rivalry.contexts.plain.seed + seed)
        with rivalry.backend.open(call, contexts, kind=kind_of_call) as workers:
            step = _Step(rivalry, run, contexts, workers, seed)
            comparison = comparison or step.begin()
            for place, method in enumerate(asked, start=1):
                rows, search = step.run(method)
                comparison = comparison.with_results(
                    rows, search, "searches" if method is None else method.kind
                )
                text = json.dumps(comparison.to_table(), indent=1)
                write_atomically(run.path / RESULTS, text.encode())
                done = seed * len(asked) + place
                rivalry.observer(MethodDone(rows[0].method, seed, done, steps, tuple(rows)))
    assert comparison is not None
    return comparison


def error_as_proposed(context: Context, network: Network) -> float | None:
    """The error of a network on the test set, as it was proposed; None for one that gives no answers."""
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
    """Everything about one seed."""

    rivalry: Rivalry
    run_folder: RunFolder
    contexts: Contexts
    workers: Workers
    seed: int

    @property
    def context(self) -> Context:
        """What networks are tested and fine-tuned in."""
        return self.contexts.plain

    def begin(self) -> Comparison:
        """What earlier calls have found, or nothing but the original's error."""
        results = self.run_folder.path / RESULTS
        if results.exists():
            return read_comparison(results)
        full = self.context.graph.full_genome()
        with History(self._history_file(OURS)) as history:
            (error,) = self._problem(history, Clock()).map(error_as_proposed, [Network(full)])
        if error is None:
            raise InputError(
                "the network has outputs on the test images that are not finite (nan or inf): there is "
                "nothing to compare; check its weights and the values of the images"
            )
        return Comparison(self.rivalry.targets, error, self.context.graph.flops(full))

    def run(self, method: Method | None) -> tuple[list[Row], Search | None]:
        """Rows of one method, None standing for the picks of the run that was matched."""
        name = OURS if method is None else method.name
        path = self._folder("proposals") / f"{file_name(name, self.seed)}.safetensors"
        proposal = read_proposal(path)
        if proposal is None:
            proposal = self._propose(name, method)
            write_proposal(path, proposal)
            proposal = read_proposal(path)  # as a comparison that goes on would find it
            assert proposal is not None
        errors, seconds = self._finetune(name, proposal)
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
                select_seconds=proposal.seconds / len(self.rivalry.targets),
                finetune_seconds=seconds.get(place, 0.0),
            )
            for place, (target, network, before) in enumerate(
                zip(self.rivalry.targets, proposal.networks, proposal.errors, strict=True)
            )
        ]
        return rows, self._searched(name, method, proposal.seconds)

    def _propose(self, name: str, method: Method | None) -> Proposal:
        clock = Clock()
        with History(self._history_file(name)) as history, torch_threads(self.rivalry.search.threads):
            if name == self.rivalry.same and self.seed == 0:
                self._take_over(history)
            problem = self._problem(history, clock)
            if method is None:
                networks = self._ours(problem)
                seconds = clock.seconds() + sum(one.seconds for one in self.rivalry.evaluated)
            else:
                networks = method.propose(problem, self.rivalry.targets)
                seconds = clock.seconds()
            return Proposal(tuple(networks), tuple(problem.map(error_as_proposed, networks)), seconds)

    def _take_over(self, history: History) -> None:
        """What the matched run found out, so that its search need not be done once more."""
        if self.rivalry.guide is not None:
            history.set_fact(facts.GUIDE, dict(self.rivalry.guide))
        for evaluation in self.rivalry.evaluated:
            history.record_evaluation(evaluation)

    def _ours(self, problem: Problem) -> list[Network]:
        """The picks of the matched run as it hands them to fine-tuning."""
        picks = list(self.rivalry.ours)
        return problem.refitted(pick.genome for pick in picks) if self.rivalry.ours_refit else picks

    def _problem(self, history: History, clock: Clock) -> Problem:
        return Problem(self.rivalry.model, self.contexts, self.rivalry.search, self.workers, history, clock)

    def _history_file(self, name: str) -> Path:
        return self._folder("searches") / f"{file_name(name, self.seed)}.sqlite"

    def _folder(self, name: str) -> Path:
        return folder_within(self.run_folder.path, self.run_folder.path / name)

    def _searched(self, name: str, method: Method | None, seconds: float) -> Search | None:
        with History(self._history_file(name)) as history:
            found = history.evaluations()
        if not found:
            return None
        full = self.context.graph.flops(self.context.graph.full_genome())
        costs = self.context.graph.flops(np.array([evaluation.genome for evaluation in found])) / full
        errors = (evaluation.error for evaluation in found)
        points = [(error, cost) for error, cost in zip(errors, costs, strict=True) if error is not None]
        by_refit = method is not None and method.judges_by_refit
        task = (self.contexts.refitting if by_refit else self.contexts.plain).task
        assert isinstance(task, Classification)
        return Search(name, self.seed, len(found), hypervolume(points), task.search.evaluation, seconds)

    def _finetune(self, name: str, proposal: Proposal) -> tuple[dict[int, float], dict[int, float]]:
        variant = file_name(name, self.seed)
        networks = {place: one for place, one in enumerate(proposal.networks) if not one.failure}
        genomes = {place: network.genome for place, network in networks.items()}
        roles = {place: (name, target.name) for place, target in enumerate(self.rivalry.targets)}
        starts = {
            place: save(network.weights) for place, network in networks.items() if network.weights is not None
        }
        task = self.context.task
        assert isinstance(task, Classification)
        assert task.tuning is not None
        seed = task.tuning.seed + self.seed
        tuning = Finetuning(self.run_folder, self.context, self.rivalry.observer, seed, variant)
        tuned = tuning.train(_Rounds(self.workers), genomes, roles, starts)
        tuning.forget_answers()
        for place, one in tuned.items():
            if isinstance(one, RunError):
                raise RunError(f"fine-tuning of {', '.join(roles[place])} failed:\n{one}")
        seconds = {
            place: sum(
                row.seconds for row in self.run_folder.history.epochs(f"{candidate_name(place)}/{variant}")
            )
            for place in genomes
        }
        errors = {place: one.test_error for place, one in tuned.items() if isinstance(one, Tuned)}
        return {place: float(error) for place, error in errors.items() if error is not None}, seconds


class _Rounds(Session[Round, RoundDone]):
    """Rounds of fine-tuning by workers that can do anything."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def map(self, items: Iterable[tuple[Key, Round]]) -> Iterator[Outcome[Key, RoundDone]]:
        return self._workers.map((key, Work(run_round, item)) for key, item in items)

    def close(self) -> None:
        """Nothing: the workers are closed by whoever opened them."""
