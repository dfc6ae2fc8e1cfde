"""The comparison itself: all methods propose networks, which are fine-tuned alike; each step is on disk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from deeppruning.backends.base import Backend, Key, Outcome, Session
from deeppruning.comparison.problem import (
    Clock,
    Contexts,
    Method,
    Network,
    Problem,
    Target,
    Work,
    Workers,
    call,
    kind_of_call,
)
from deeppruning.comparison.results import (
    OURS,
    Comparison,
    MethodDone,
    RivalObserver,
    Row,
    Search,
    hypervolume,
    read_comparison,
)
from deeppruning.config import SearchConfig
from deeppruning.errors import DAMAGE, Diverged, InputError, RunError
from deeppruning.genome import Genome
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
from deeppruning.training.tensors import hash_tensors, read_tensors, write_tensors

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
        networks = [_network(place, tensors, str(failures[place])) for place in range(len(errors))]
        return Proposal(tuple(networks), errors, float(json.loads(facts["seconds"])))
    except DAMAGE as error:
        raise RunError(f"{path} is not a whole proposal ({error}); {advice}") from error


def _network(place: int, tensors: Mapping[str, Tensor], failure: str) -> Network:
    genome: Genome = tensors[f"{place}/genome"].numpy().astype(np.bool_)
    start = f"{place}/weights/"
    weights = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    return Network(genome, weights or None, failure)


@dataclass(frozen=True, eq=False)
class Rivalry:
    """A comparison, ready to run."""

    model: nn.Module
    contexts: Contexts  # with the whole task, and the first seed
    search: SearchConfig
    backend: Backend
    methods: tuple[Method, ...]
    targets: tuple[Target, ...]
    seeds: int
    ours: tuple[Network, ...] = ()  # the picks of the run that the comparison is matched to
    ours_refit: bool = False  # whether this run refits its picks before it fine-tunes them
    evaluated: tuple[Evaluation, ...] = ()  # all evaluations of this run
    guide: Mapping[str, Any] | None = None  # of this run, if it is a guided one
    same: str = ""  # the method that, with the first seed, repeats the search of this run
    observer: RivalObserver = ignore

    def data_fingerprint(self) -> str:
        """A hash of all images and labels: of sample, training and test."""
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
    """Ask every method with every seed and fine-tune its networks; steps that are on disk are not repeated.

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

    rivalry: Rivalry
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
        path = self._folder("proposals") / f"{name}-seed-{self.seed}.safetensors"
        proposal = read_proposal(path)
        if proposal is None:
            proposal = self._propose(name, method)
            write_proposal(path, proposal)
            proposal = read_proposal(path)  # as a resumed comparison would read it
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
                seconds = clock.seconds() + sum(evaluation.seconds for evaluation in self.rivalry.evaluated)
            else:
                networks = method.propose(problem, self.rivalry.targets)
                seconds = clock.seconds()
            return Proposal(tuple(networks), tuple(problem.map(error_as_proposed, networks)), seconds)

    def _take_over(self, history: History) -> None:
        """Copy guide and evaluations of the matched run, so that its search is not repeated."""
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
        return self._folder("searches") / f"{name}-seed-{self.seed}.sqlite"

    def _folder(self, name: str) -> Path:
        return folder_within(self.run_folder.path, self.run_folder.path / name)

    def _searched(self, name: str, method: Method | None, seconds: float) -> Search | None:
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

    def _finetune(self, name: str, proposal: Proposal) -> tuple[dict[int, float], dict[int, float]]:
        variant = f"{name}-seed-{self.seed}"
        networks = {place: network for place, network in enumerate(proposal.networks) if not network.failure}
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


class _Rounds(Session[Round, RoundDone]):
    """Rounds of fine-tuning by the workers of a comparison."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def map(self, items: Iterable[tuple[Key, Round]]) -> Iterator[Outcome[Key, RoundDone]]:
        return self._workers.map((key, Work(run_round, item)) for key, item in items)

    def close(self) -> None:
        """Nothing: the workers are closed where they were opened."""
