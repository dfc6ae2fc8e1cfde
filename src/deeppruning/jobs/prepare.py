"""A job: everything a run needs, settled once from what a user gives: a model, data or a task, options."""

import fnmatch
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.conv import _ConvNd

from deeppruning.amounts import listed
from deeppruning.backends import Backend
from deeppruning.backends.local import local_backend
from deeppruning.backends.registry import Wanted
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError, unknown
from deeppruning.graph import ChannelGraph
from deeppruning.graph.proof.twin import check_model
from deeppruning.jobs.classification import Augmentation, classification, example_image, fit_augmentation
from deeppruning.jobs.solution import original_network
from deeppruning.limits import COUNTED, Limits
from deeppruning.models.registry import architecture_of
from deeppruning.objectives import Objective, as_objective
from deeppruning.refitting.probing import FEWEST
from deeppruning.runs import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import Observer, Stage, ignore
from deeppruning.searching.task import Classification, Task
from deeppruning.searching.unlabelled import Unlabelled
from deeppruning.system.device import available_threads, default_workers, most_workers, workers_here
from deeppruning.targets.aiming import Settled, refuse_unreachable, settle, with_objective
from deeppruning.training.finite import learnt, not_finite
from deeppruning.training.tensors import hash_tensors

LINEAR_HINT = (
    "; to prune hidden units of its linear layers give prune_linear (--prune-linear), "
    "to prune heads of its attention prune_heads (--prune-heads)"
)
NO_LIMITS = Limits()
Config = TypeVar("Config", SearchConfig, FinetuneConfig)


@dataclass(frozen=True)
class Compute:
    """Where a job is computed; nothing of it changes the result."""

    workers: int | None = None  # local processes; None: as many as the cores have room for
    device: str = "auto"
    backend: Backend | None = None  # instead of local processes

    def resumed(self, recorded: Mapping[str, Any]) -> "Compute":
        """The same, with what was left open taken from the table that a run recorded."""
        return Compute(
            workers=workers_here(recorded.get("workers")) if self.workers is None else self.workers,
            device=recorded["device"] if self.device == "auto" else self.device,
            backend=self.backend,
        )

    def alone(self, recorded: Mapping[str, Any]) -> "Compute":
        """For the fine-tuning of one network: one worker, on the device that the run recorded."""
        return replace(self, workers=1, device=self.resumed(recorded).device)

    def worker_count(self, threads: int) -> int:
        """How many local processes evaluate candidates, each with this many threads."""
        if self.workers is None:
            return default_workers(threads)
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise InputError(
                "workers must be a whole number of at least 1, or None to use all cores, "
                f"got {self.workers!r}"
            )
        if self.workers > most_workers():
            raise InputError(
                f"workers must be at most {most_workers()} on this machine, which has {available_threads()} "
                f"cores, got {self.workers}; leave it out to use them all"
            )
        return self.workers

    def make_backend(self, threads: int) -> Backend:
        """The backend that was given, or one of local processes."""
        return self.backend or local_backend(Wanted(threads=threads, workers=self.worker_count(threads)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """A network, its task and its options, ready to run."""

    model: nn.Module
    context: Context
    task: Task  # the context's task may be a lighter copy, without the whole training set
    search: SearchConfig
    finetune: FinetuneConfig
    compute: Compute
    backend: Backend
    description: Mapping[str, str] = field(default_factory=dict)  # metadata of saved solutions
    observer: Observer = ignore
    target: Limits = field(default_factory=Limits)
    multiples: Mapping[str, int] | None = None  # fast multiples by runtime, where they decided the widths
    sample_note: str = ""  # why the sample is smaller than usual
    augmentation: Augmentation | None = None  # None where nothing is fine-tuned with augmentation


HERE = Compute()


def prepare(
    model: nn.Module,
    train: Any = None,
    test: Any = None,
    *,
    search: SearchConfig | None = None,
    finetune: FinetuneConfig | None = None,
    target: Limits = NO_LIMITS,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    compute: Compute = HERE,
    observer: Observer = ignore,
    history: History | None = None,
    measure: bool = True,
) -> Job:
    """Check what is given, analyse the network and settle all options.

    With the `history` of a run, its own options, latency plan and augmentation are kept. With `measure` off,
    nothing is measured on this machine and no augmentation is tried: for a comparison, or a mere check.
    """
    options, tuning = checked(SearchConfig, search), checked(FinetuneConfig, finetune).settled()
    if history is None and objective is None:
        options = with_objective(options, target)
    _check_model_given(model)
    _check_task(task, target, {"train": train, "test": test, "finetune": finetune})
    backend = compute.make_backend(options.threads)
    device, sample_note = backend.device(compute.device), ""
    if task is None:
        observer(Stage("data"))
        task, sample_note = classification(model, train, test, options, tuning, target, device)
        options = task.search
    elif isinstance(task, Unlabelled):
        task = replace(task, device=device)
    example_input = _example_of_task(model, task) if example_input is None else example_input
    observer(Stage("graph"))
    graph = prunable_graph(model, example_input, options)
    if history is None:
        check_patterns(options.exclude, model, graph)
        # Multiples that the user did not choose give way to a limit.
        refuse_unreachable(graph.rounded(1) if options.multiples is None else graph, target)
    chosen = as_objective(options.objective if objective is None else objective)
    settled = Settled(graph, options, chosen)
    if measure:
        if history is None and options.multiples is None:
            observer(Stage("widths"))
        settled = settle(graph, options, chosen, target, example_input, device, history)
    _check_sample(task, sample_note)
    context = _context_for_workers(settled, task, example_input, device)
    augmentation = None
    if measure and isinstance(task, Classification):
        task, augmentation = fit_augmentation(task, original_network(context), history)
    return Job(
        model=model,
        context=context,
        task=task,
        search=settled.search,
        finetune=tuning,
        compute=compute,
        backend=backend,
        description=_solution_metadata(model, task),
        observer=observer,
        target=target,
        multiples=settled.multiples,
        sample_note=sample_note,
        augmentation=augmentation,
    )


def _context_for_workers(settled: Settled, task: Task, example_input: Any, device: str) -> Context:
    """What workers are sent: of images only the sample."""
    return Context(
        graph=settled.graph,
        task=task.for_search() if isinstance(task, Classification) else task,
        objective=settled.objective,
        example_input=example_input,
        seed=settled.search.seed,
        device=device,
        plan=settled.plan,
        memory=settled.search.memory,
    )


def _example_of_task(model: nn.Module, task: Task) -> Any:
    """One input of the network, if the task has images."""
    if not isinstance(task, Classification):
        raise InputError("a task of your own needs example_input: one input the network can be run on")
    return example_image(model, task.sample)


def checked(kind: type[Config], options: Config | None) -> Config:
    """The options that are given, or the defaults; a dict is refused with how it is written."""
    if options is not None and not isinstance(options, kind):
        raise InputError(
            f"options are given as {kind.__name__}, got {options!r} ({type(options).__name__}); "
            f"write {kind.__name__}(name=value, ...)"
        )
    return kind() if options is None else options


def _check_model_given(model: nn.Module) -> None:
    """Refuse anything that is no network."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    check_model(model)
    broken = not_finite(learnt(model))
    if broken:
        raise InputError(
            f"the network has weights that are not finite (nan or inf): {listed(broken)}; "
            "give one whose training did not diverge"
        )


def _check_task(task: Task | None, target: Limits, ignored: dict[str, Any]) -> None:
    """Refuse what a task of the user's own would not use, and a limit that it cannot check."""
    if task is None:
        return
    useless = [name for name, value in ignored.items() if value is not None]
    if useless:
        raise InputError(
            f"a task of your own has its own data and fine-tuning: {' and '.join(useless)} would be "
            "ignored; leave that out, or the task"
        )
    if target.bounds_error and type(task).validation_error is Task.validation_error:
        raise InputError(
            f"the target limits the error ({target}), which is checked on data that is not trained "
            f"on: give {type(task).__name__} a method validation_error(model), or limit a cost"
        )


def _check_sample(task: Task, sample_note: str) -> None:
    """Refuse a sample that is too small for a refit."""
    if isinstance(task, Classification) and task.refits and len(task.sample) < 2 * FEWEST:
        why = f" ({sample_note})" if sample_note else ""
        raise InputError(
            f"a refit needs at least {FEWEST} images to fit and {FEWEST} more to evaluate, but the sample "
            f"has {len(task.sample)}{why}: give {2 * FEWEST} or more, or choose another evaluation"
        )


def _solution_metadata(model: nn.Module, task: Task) -> dict[str, str]:
    """The metadata of the solutions."""
    described = {"base": hash_tensors(model.state_dict())}
    architecture = architecture_of(model)
    if architecture is not None:
        described["architecture"] = json.dumps(architecture, sort_keys=True)
    if isinstance(task, Classification):
        described["classes"] = json.dumps(task.sample.classes)
        described["image_shape"] = json.dumps(task.sample.image_shape)
        normalization = task.sample.normalization
        if normalization is not None:
            described["normalization"] = json.dumps({"mean": normalization.mean, "std": normalization.std})
    return described


def check_patterns(exclude: tuple[str, ...], model: nn.Module, graph: ChannelGraph) -> None:
    """Refuse a pattern in `exclude` that matches no layer: it is misspelt."""
    modules = [name for name, module in model.named_modules() if isinstance(module, (nn.Linear, _ConvNd))]
    layers = sorted({*graph.layer_genes(), *modules})
    for pattern in exclude:
        if not fnmatch.filter(layers, pattern):
            raise unknown("layer in exclude", pattern, layers)


def prunable_graph(model: nn.Module, example_input: Any, search: SearchConfig) -> ChannelGraph:
    """The channel graph by the search's options; a network that cannot lose a single filter is refused."""
    by_paper = getattr(model, "paper_excludes", ()) if search.encoding == "paper" else ()
    graph = ChannelGraph(
        model,
        example_input,
        exclude=(*by_paper, *search.exclude),
        min_channels=search.min_channels,
        round_to=search.multiples,
        prune_linear=search.prune_linear,
        prune_heads=search.prune_heads,
        depth=search.depth,
    )
    if graph.num_genes == 0:
        linear = any(isinstance(module, nn.Linear) for module in model.modules())
        hint = LINEAR_HINT if linear and not (search.prune_linear or search.exclude) else ""
        raise InputError(f"nothing of this network can be pruned{hint}:\n{graph}")
    if graph.repair(~graph.full_genome()).all():
        raise InputError(
            f"nothing of this network can be pruned: every layer must keep at least {search.min_channels} "
            f"filters and a multiple of {search.round_to or 'what vector units like'}, which is all it has; "
            f"lower min_channels or round_to\n{graph}"
        )
    if search.strategy == "guided" and search.objective in COUNTED:
        price = getattr(graph, search.objective)
        least = price(~graph.full_genome()) / price(graph.full_genome())
        if search.high <= least:
            raise InputError(
                f"the search ends at {search.high:.0%} of the original's {search.objective}, but this "
                f"network cannot be cut below {least:.1%}: raise high"
            )
    return graph
