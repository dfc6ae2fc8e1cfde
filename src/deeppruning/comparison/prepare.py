"""A comparison from its options: checked, and matched to a run if one is named."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deeppruning.comparison.problem import REFIT, Contexts, Method, Network, Target, choose_methods
from deeppruning.comparison.results import ComparisonObserver
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.data.images import ImageSet
from deeppruning.data.sample import balanced_sample
from deeppruning.data.stream import Images
from deeppruning.errors import InputError, RunError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.identity import check_options, check_same_network
from deeppruning.jobs.prepare import Job
from deeppruning.objectives import OBJECTIVES
from deeppruning.roles import ROLES
from deeppruning.runs import Evaluation, History, facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import COMPARISON, CONFIG, RunFolder
from deeppruning.searching.evaluations import refits
from deeppruning.searching.events import ignore
from deeppruning.searching.task import Classification
from deeppruning.system.commands import command
from deeppruning.system.files import refuse_linked_folder
from deeppruning.system.toml import without_none
from deeppruning.training.tensors import hash_tensors

FLOPS = OBJECTIVES["flops"]
EVERY_WIDTH = 1  # the default of round_to in a comparison


@dataclass(frozen=True, eq=False)
class Match:
    """A run to match: its options, its picks and its evaluations."""

    search: SearchConfig
    finetune: FinetuneConfig
    device: str
    task: str | None  # fingerprint of the data that candidates are evaluated on
    flops: int  # of the original
    picks: dict[str, Network]
    evaluated: tuple[Evaluation, ...]
    guide: Mapping[str, Any] | None = None  # of a guided search
    by_time: bool = False  # whether the search was ended by its time

    @property
    def refits(self) -> bool:
        """Whether the run refits its picks before it fine-tunes them."""
        return refits(self.search) and not self.finetune.from_scratch

    @property
    def method(self) -> str:
        """The method that repeats this run's search, with the same candidates; empty if there is none."""
        if self.search.objective != FLOPS.name or self.by_time:
            return ""
        if self.search.strategy == "guided":
            alike = self.search.evaluation == REFIT and self.search.multiples == EVERY_WIDTH
            return "guided" if alike else ""
        return "" if refits(self.search) else f"es-{self.search.selection}"

    def copy_search(self, history: History) -> None:
        """Put guide and evaluations into another history, so that the search is not repeated."""
        if self.guide is not None:
            history.set_fact(facts.GUIDE, dict(self.guide))
        for evaluation in self.evaluated:
            history.record_evaluation(evaluation)

    @classmethod
    def read(cls, path: Path | str, model: Any) -> "Match":
        """Read a run with a finished search."""
        with RunFolder.open(path, read_only=True) as run:
            check_same_network(run, model)
            check_options(run)
            search = SearchConfig.from_table(run.config["search"])
            if run.history.get_fact(facts.MULTIPLES) and search.round_to != EVERY_WIDTH:
                search = replace(search, round_to=None)  # these multiples were not asked for
            candidates = {candidate.id: candidate for candidate in run.history.candidates()}
            ended = run.history.get_fact(facts.ENDED)
            last = ended or search.generations
            if search.strategy == "guided":  # all methods get as many candidates, whatever time they take
                search = replace(search, generations=last, minutes=None)
            picks = run.history.picks().get(last or 0, {})
            if picks.keys() != set(ROLES):
                raise RunError(
                    f"the search in {path} is not over, so there are no selected networks to match; "
                    f"finish it with `{command('resume', path)}`"
                )
            with readable_errors(run.history.path):  # missing rows or facts
                return cls(
                    search=search,
                    finetune=FinetuneConfig.from_table(run.config["finetune"]),
                    device=run.config["run"]["device"],
                    task=run.history.get_fact(facts.TASK),
                    flops=(run.history.get_fact(facts.ORIGINAL_FIGURES) or {})["flops"],
                    picks={role: Network(candidates[id_].genome) for role, id_ in picks.items()},
                    evaluated=tuple(run.history.evaluations()),
                    guide=run.history.get_fact(facts.GUIDE),
                    by_time=ended is not None,
                )


def comparable(search: SearchConfig) -> SearchConfig:
    """The options with every width allowed, unless they say otherwise: all can meet the same FLOPs."""
    if search.minutes is not None:
        raise InputError(
            "a comparison gives all methods the same number of candidates: give generations, not minutes"
        )
    return replace(search, round_to=EVERY_WIDTH) if search.round_to is None else search


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparisonPlan:
    """A comparison, ready to run."""

    job: Job
    contexts: Contexts  # with the whole task, and the first seed
    methods: Sequence[Method]
    targets: tuple[Target, ...]
    seeds: int
    match: Match | None = None  # the run whose picks take part
    observer: ComparisonObserver = ignore

    def config(self) -> dict[str, Any]:
        """What decides the results; a folder holds those of one such table."""
        task = self.contexts.plain.task
        assert isinstance(task, Classification)
        sets = {"sample": task.sample, "train": task.train, "test": task.test}
        tensors = {
            f"{name}/{part}": tensor
            for name, images in sets.items()
            if images is not None
            for part, tensor in images.key_tensors().items()
        }
        return {
            "targets": [target.name for target in self.targets],
            "flops": [target.flops for target in self.targets],
            "search": self.job.search.to_table(),
            "finetune": self.job.finetune.to_table(),
            "model": hash_tensors(self.job.model.state_dict()),
            "data": hash_tensors(tensors),
        }


def prepare_comparison(
    job: Job,
    match: Match | None,
    observer: ComparisonObserver,
    *,
    methods: str | Sequence[str],
    shares: Sequence[float],
    seeds: int,
    images: int | None,
    test_images: int | None,
) -> ComparisonPlan:
    """Check everything before any work starts."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise InputError(f"seeds must be a whole number of at least 1, got {seeds!r}")
    task, graph = job.task, job.context.graph
    assert isinstance(task, Classification)
    assert task.train is not None
    if task.test is None:
        raise InputError("methods are compared by their error on test data: give test data")
    chosen = choose_methods(methods)
    _check_sample_for_methods(chosen, task.sample)
    if images is not None:
        task = replace(task, train=_sample_of_size(task.train, images, job.search.seed))
    if test_images is not None and task.test is not None:
        task = replace(task, test=_sample_of_size(task.test, test_images, job.search.seed))
    if match is not None:
        _check_matched_run(match, task, graph)
    elif job.search.objective != FLOPS.name:
        raise InputError(f"a comparison is at equal FLOPs: its objective cannot be {job.search.objective!r}")
    targets = _targets_to_compare(graph, shares, match)
    if job.search.evaluations < len(targets):
        raise InputError(
            f"{len(targets)} networks are requested, more than the {job.search.evaluations} evaluations of "
            "a search; ask for fewer"
        )
    contexts = Contexts.of(replace(job.context, objective=FLOPS), task)
    return ComparisonPlan(
        job=job,
        contexts=contexts,
        methods=chosen,
        targets=targets,
        seeds=seeds,
        match=match,
        observer=observer,
    )


def _check_sample_for_methods(methods: Sequence[Method], sample: ImageSet) -> None:
    """Raise an error for methods that need more images than there are."""
    for method in methods:
        if len(sample) < method.least_sample:
            raise InputError(
                f"the method {method.name} needs a sample of at least {method.least_sample} images, this one "
                f"has {len(sample)}: give a larger sample, or name other methods"
            )


def _sample_of_size(data: Images, images: int, seed: int) -> ImageSet:
    """A class-balanced sample of this many images."""
    if images > len(data):
        raise InputError(f"{images} images are requested, but there are only {len(data)}")
    return balanced_sample(data, images, seed)


def _check_matched_run(match: Match, task: Classification, graph: ChannelGraph) -> None:
    """Raise an error for a run that used other data, or counted other FLOPs."""
    if match.task is not None and match.task != task.fingerprint():
        raise RunError("the run to match was started with other training data; give the same")
    full = graph.flops(graph.full_genome())
    if match.flops != full:
        raise RunError(
            f"the original has {full:,} FLOPs here and {match.flops:,} in the run to match: give images of "
            "the same size, or the same example_input"
        )


def _targets_to_compare(
    graph: ChannelGraph, shares: Sequence[float], match: Match | None
) -> tuple[Target, ...]:
    """The sizes of networks to ask for: those of the matched run, or fractions of the FLOPs."""
    full, least = graph.flops(graph.full_genome()), graph.flops(~graph.full_genome())
    if match is not None:
        return tuple(Target(role, graph.flops(match.picks[role].genome)) for role in ROLES)
    if not shares:
        raise InputError(
            "say how large the networks should be: give a run to match, or fractions of the FLOPs"
        )
    if len(set(shares)) < len(shares):
        raise InputError(f"the fractions of FLOPs must differ, got {', '.join(map(str, shares))}")
    for share in shares:
        if not least / full <= share < 1.0:
            raise InputError(
                f"a fraction of FLOPs must lie below 1 and above {least / full:.3f}, the least that this "
                f"network can be cut to, got {share}"
            )
    return tuple(Target(f"{100 * share:g}%", round(share * full)) for share in shares)


def open_comparison(path: Path | str, config: Mapping[str, Any]) -> RunFolder:
    """The folder of a comparison, new or begun with the same options."""
    path = Path(path)
    if (path.parent / CONFIG).exists():  # within a run, possibly of someone else
        refuse_linked_folder(path)
    if not (path / CONFIG).exists():
        return RunFolder.create(path, {COMPARISON: config})
    run = RunFolder.open(path, comparison=True)
    recorded = run.config[COMPARISON]
    # Through TOML and back, absent options are left out: compare what would be written.
    given = without_none(json.loads(json.dumps(config)))
    differing = sorted(key for key in {*given, *recorded} if given.get(key) != recorded.get(key))
    if differing:
        run.close()
        raise RunError(
            f"{path} holds a comparison with other {', '.join(differing)}; "
            "give the same to continue it, or choose another folder"
        )
    return run
