"""From what a user hands over (a model, data or a task, options) to a job that can be executed."""

import copy
import fnmatch
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from deeppruning.backends import Backend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.backends.local import local_backend
from deeppruning.backends.registry import Wanted
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig
from deeppruning.data.convert import as_images
from deeppruning.data.sample import (
    SHARE_ASIDE,
    balanced_indices,
    has_balanced,
    hold_out,
    indices_aside,
    most_balanced,
    smallest_class,
)
from deeppruning.data.splits import check_fits, check_pixels
from deeppruning.data.stream import Images, ImageStream
from deeppruning.errors import DataError, InputError, unknown
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.job import Job, hash_network
from deeppruning.limits import COUNTED, Limits
from deeppruning.models.registry import architecture_of
from deeppruning.objectives import Objective, as_objective
from deeppruning.refitting.reference import FEWEST
from deeppruning.searching.candidate import Context
from deeppruning.searching.evaluations import EVALUATIONS
from deeppruning.searching.events import Observer, ignore
from deeppruning.searching.task import Classification, Task
from deeppruning.searching.unlabelled import Unlabelled
from deeppruning.system.device import available_threads, default_workers, most_workers, precision_of
from deeppruning.training.evaluate import check_outputs
from deeppruning.training.finite import learnt, listed, not_finite

LINEAR_HINT = "; to prune hidden units of its linear layers give prune_linear (--prune-linear)"


@dataclass(kw_only=True)
class Setup:
    """What a user says about a run; `job` checks it and makes it ready."""

    model: nn.Module
    train: Any = None
    test: Any = None
    search: SearchConfig = field(default_factory=SearchConfig)
    finetune: FinetuneConfig | None = None
    workers: int | None = None  # by default as many as the cores have room for
    backend: Backend | None = None
    candidate_timeout: Timeout | None = None  # seconds, auto or off; None: the backend's own, which is auto
    device: str = "auto"
    task: Task | None = None
    objective: Objective | str | Callable[[nn.Module], float] | None = None
    example_input: Any = None
    observer: Observer = ignore
    target: Limits = field(default_factory=Limits)
    sample_note = ""  # why a sample whose size nobody asked for is a small one; no option, hence no field

    @property
    def tuning(self) -> FinetuneConfig:
        """The options of fine-tuning, the usual ones where none were given."""
        return self.finetune or FinetuneConfig()

    @property
    def worker_count(self) -> int:
        """How many local processes evaluate candidates."""
        if self.workers is None:
            return default_workers(self.search.threads)
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise InputError(
                f"workers must be a whole number of at least 1, or None for as many as the cores have room "
                f"for, got {self.workers!r}"
            )
        if self.workers > most_workers():
            raise InputError(
                f"workers must be at most {most_workers()} on this machine, which has {available_threads()} "
                f"cores, got {self.workers}; leave it out to use them all"
            )
        return self.workers

    def job(self) -> Job:
        """The job, its network understood and its options checked."""
        self._refuse_beside_task()
        if not isinstance(self.model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module, got {type(self.model).__name__}")
        broken = not_finite(learnt(self.model))
        if broken:
            raise InputError(
                f"the network has weights that are not finite (nan or inf): {listed(broken)}; "
                "give one whose training held"
            )
        if self.backend is not None and self.candidate_timeout is not None:
            raise InputError("candidate_timeout goes with the local backend; another one is given timeout=")
        local = self._local_backend()  # in any case, so that a wrong number of workers is seen
        backend = self.backend or local
        device = backend.device(self.device)
        task = self.task if self.task is not None else self._classification(device)
        if isinstance(task, Unlabelled):
            task = replace(task, device=device)
        example_input = self._example(task)
        graph = prunable_graph(self.model, example_input, self.search)
        light = task.for_search() if isinstance(task, Classification) else task
        objective = as_objective(self.search.objective if self.objective is None else self.objective)
        return Job(
            model=self.model,
            context=Context(
                graph, light, objective, example_input, self.search.seed, device, refits=self._refits(task)
            ),
            task=task,
            search=self.search,
            finetune=self.tuning,
            backend=backend,
            description=self._describe(task),
            observer=self.observer,
            target=self.target,
        )

    def check_patterns(self, graph: ChannelGraph) -> None:
        """Refuse an `exclude` that leaves nothing alone: it is a layer's name misspelt."""
        layers = sorted({*graph.layer_genes(), *_layers(self.model)})
        for pattern in self.search.exclude:
            if not fnmatch.filter(layers, pattern):
                raise unknown("layer in exclude", pattern, layers)

    def _refuse_beside_task(self) -> None:
        """Refuse what a task of the user's own would not look at."""
        given = {"train": self.train, "test": self.test, "finetune": self.finetune}
        ignored = [name for name, value in given.items() if value is not None]
        if self.task is not None and ignored:
            raise InputError(
                f"a task of your own has its own data and fine-tuning: {' and '.join(ignored)} would be "
                "ignored; leave that out, or the task"
            )
        unaware = self.task is not None and type(self.task).validation_error is Task.validation_error
        if unaware and self.target.bounds_error:
            raise InputError(
                f"the target limits the error ({self.target}), which is checked on data that is not trained "
                f"on: give {type(self.task).__name__} a method validation_error(model), or limit a cost"
            )

    def _classification(self, device: str) -> Classification:
        if self.train is None:
            raise InputError("training data is needed: pass train, or a task of your own with example_input")
        train, test = _image_sets(self.train, self.test)
        self._check_labels(train, test)
        identity = train.identity if isinstance(train, ImageStream) else ""
        train, validation = set_aside(train, self.target, self.search.seed)
        self.search, self.sample_note = settle_sample(self.search, train)
        size = min(self.search.sample or USUAL_SAMPLE, len(train))
        sampled = balanced_indices(train, size, self.search.seed)
        task = Classification(
            sample=train.subset(sampled).in_memory(),
            search=self.search,
            device=device,
            train=train,
            test=test,
            validation=validation,
            tuning=self.tuning,
            teacher=self.model,
            identity=identity,
        )
        if validation is None and task.keeps_best and task.rounds:
            return _with_images_aside(task, train, sampled)
        return task

    def _check_labels(self, train: Images, test: Images | None) -> None:
        """Refuse labels that the network has no output for, and outputs that are no scores of classes."""
        example = example_image(self.model, train).to(next(self.model.parameters(), torch.empty(0)).device)
        try:
            with torch.random.fork_rng(), torch.no_grad():
                outputs = copy.deepcopy(self.model).eval()(example)
        except Exception:  # whatever the user's code raises: the channel graph tells it, with what to do
            return
        check_outputs(outputs, 1, 0)
        for part, data in {"training": train, "test": test}.items():
            worst = 0 if data is None else int(data.labels.argmax())
            if data is not None and int(data.labels[worst]) >= outputs.shape[1]:
                raise DataError(
                    f"the model has {outputs.shape[1]} outputs but the data has {data.num_classes} classes: "
                    f"{part} image {worst} has label {int(data.labels[worst])}; correct the labels, which "
                    f"count from 0, or build it with num_classes={data.num_classes}"
                )

    def _refits(self, task: Task) -> bool:
        """Whether candidates are refitted; a sample that is too small for it is refused."""
        if not EVALUATIONS.find(self.search.evaluation).refits:
            return False
        if isinstance(task, Classification) and len(task.sample) < 2 * FEWEST:
            why = f" ({self.sample_note})" if self.sample_note else ""
            raise InputError(
                f"a refit needs at least {FEWEST} images to learn from and as many to be judged on, the "
                f"sample has {len(task.sample)}{why}: give {2 * FEWEST} or more, or choose another evaluation"
            )
        return True

    def _example(self, task: Task) -> Any:
        if self.example_input is not None:
            return self.example_input
        if isinstance(task, Classification):
            return example_image(self.model, task.sample)
        raise InputError("a task of your own needs example_input: one input the network can be run on")

    def _local_backend(self) -> Backend:
        timeout = AUTO if self.candidate_timeout is None else read_timeout(self.candidate_timeout)
        return local_backend(Wanted(threads=self.search.threads, workers=self.worker_count, timeout=timeout))

    def _describe(self, task: Task) -> dict[str, str]:
        described = {"base": hash_network(self.model)}
        architecture = architecture_of(self.model)
        if architecture is not None:
            described["architecture"] = json.dumps(architecture, sort_keys=True)
        if isinstance(task, Classification):
            described["classes"] = json.dumps(task.sample.classes)
            described["image_shape"] = json.dumps(task.sample.image_shape)
            normalization = task.sample.normalization
            if normalization is not None:
                described["normalization"] = json.dumps(
                    {"mean": normalization.mean, "std": normalization.std}
                )
        return described


def set_aside(train: Images, target: Limits, seed: int) -> tuple[Images, Images | None]:
    """What is left to train on, and the images that an error limit is checked on, where there is one."""
    return hold_out(train, SHARE_ASIDE, seed) if target.bounds_error else (train, None)


def _with_images_aside(task: Classification, train: Images, sampled: torch.Tensor) -> Classification:
    """The same task, some images neither trained nor refitted on: they tell whether fine-tuning helped."""
    aside = indices_aside(train, sampled, task.search.seed)
    if not len(aside):
        return task
    kept = torch.ones(len(train), dtype=torch.bool)
    kept[aside] = False
    return replace(
        task,
        train=train.subset(kept.nonzero().flatten()),
        validation=train.subset(aside),
        refitted=task.sample.subset(kept[sampled].nonzero().flatten()),
    )


def settle_sample(search: SearchConfig, train: Images) -> tuple[SearchConfig, str]:
    """The same search with a size for its sample, where none was asked for, and why it is not the usual one.

    >>> from deeppruning.data.images import ImageSet
    >>> data = ImageSet(torch.zeros(70, 1, 2, 2), torch.arange(70).clamp(max=50) // 50, ("a", "b"))
    >>> settle_sample(SearchConfig(), data)[1]
    "the sample has 40 images, 20 of each class: the smallest class, 'b', has no more"
    """
    if search.sample is not None:
        return search, ""
    most = most_balanced(train)
    if most == 0 or has_balanced(train, min(USUAL_SAMPLE, len(train)), search.seed):
        return replace(search, sample=USUAL_SAMPLE), ""
    note = (
        f"the sample has {most} images, {most // train.num_classes} of each class: the smallest class, "
        f"{smallest_class(train)!r}, has no more"
    )
    return replace(search, sample=most), note


def prunable_graph(model: nn.Module, example_input: Any, search: SearchConfig) -> ChannelGraph:
    """The network understood as the search's options say; refused if it could not lose a single filter."""
    by_paper = getattr(model, "paper_excludes", ()) if search.encoding == "paper" else ()
    graph = ChannelGraph(
        model,
        example_input,
        exclude=(*by_paper, *search.exclude),
        min_channels=search.min_channels,
        round_to=search.multiples,
        prune_linear=search.prune_linear,
        depth=search.depth,
    )
    if graph.num_genes == 0:
        hint = LINEAR_HINT if not (search.prune_linear or search.exclude) and _has_linear(model) else ""
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
                f"the search is to end at {search.high:.0%} of the original's {search.objective}, but this "
                f"network cannot be cut below {least:.1%}: raise high"
            )
    return graph


def example_image(model: nn.Module, images: Images) -> torch.Tensor:
    """A blank image of the set's shape, in the network's precision."""
    return torch.zeros(1, *images.image_shape, dtype=precision_of(model))


def _layers(model: nn.Module) -> list[str]:
    kinds = (nn.Linear, _ConvNd)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def _has_linear(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Linear) for module in model.modules())


def _has_names(data: Images) -> bool:
    return not all(name.isdigit() for name in data.classes)


def _read(given: Any, name: str) -> Images:
    try:
        return as_images(given)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _image_sets(train: Any, test: Any) -> tuple[Images, Images | None]:
    """Both sets in one form; whole-number pixels without a normalisation get that of the training set."""
    known = _read(train, "train")
    if len(known) == 0:
        raise DataError("there are no training images; give at least one a class")
    check_pixels(known, "training")
    if known.normalization is None:
        known = replace(known, normalization=known.measure())
    if test is None:
        return known, None
    held_out = _read(test, "test")
    # Names that are only numbers stand for labels without names: there is nothing to mix up.
    if not all(_has_names(data) for data in (known, held_out)):
        classes = max((known, held_out), key=lambda data: (_has_names(data), data.num_classes)).classes
        known, held_out = replace(known, classes=classes), replace(held_out, classes=classes)
    check_fits(known, held_out)
    return known, replace(held_out, normalization=held_out.normalization or known.normalization)
