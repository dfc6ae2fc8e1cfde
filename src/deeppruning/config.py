"""Every option of a job, checked when it is made: our own values by default, the paper's by `paper()`.

>>> SearchConfig(offspring=4).evaluations
63
>>> SearchConfig.paper().evaluations
203
>>> SearchConfig(mutation=2.0)
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: mutation must lie in [0.0, 1.0], got 2.0
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from deeppruning.errors import InputError, unknown

Config = TypeVar("Config", bound="_Checked")


def _within(name: str, value: float, low: float, high: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        limit = f"lie in [{low}, {high}]" if high != float("inf") else f"be at least {low}"
        raise InputError(f"{name} must {limit}, got {value!r}")


def _whole(name: str, value: int, low: int, high: int = 2**31 - 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{name} must be a whole number of at least {low}, got {value!r}")
    if value > high:
        raise InputError(f"{name} must be at most {high}, got {value!r}")


def _text(name: str, value: str) -> None:
    if not isinstance(value, str):  # the registry that knows the name is in a package above this one
        raise InputError(f"{name} must be a text, got {value!r}")


def _one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in list(allowed):  # a list, because a value out of a file may be one that cannot be hashed
        raise unknown(name, str(value), allowed)


@dataclass(frozen=True, kw_only=True)
class _Checked:
    """What all option sets share: to and from plain tables, with misspelt keys refused."""

    @classmethod
    def from_table(cls: type[Config], table: Mapping[str, Any]) -> Config:
        """The options of a TOML table; a key that is not known is an error naming the nearest one."""
        known = {field.name for field in fields(cls)}
        for key in table:
            if key not in known:
                raise unknown(f"{cls.__name__} option", key, known)
        _check_kinds(cls, table)
        return cls(**table)

    def to_table(self) -> dict[str, Any]:
        """A TOML-ready table that `from_table` reads back; options left at None are absent."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def _check_kinds(config: type[_Checked], table: Mapping[str, Any]) -> None:
    """Refuse switches that are not true or false and texts that are not text, which no other check sees."""
    for field in fields(config):
        value = table.get(field.name, field.default)
        if field.name == "exclude":
            fits = isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value)
            wanted = "a list of texts"
        elif isinstance(field.default, bool) or field.name == "flip":
            fits, wanted = value is None or isinstance(value, bool), "true or false"
        else:
            continue
        if not fits:
            raise InputError(f"{field.name} must be {wanted}, got {value!r}")


SCHEDULES = ("constant", "cosine", "onecycle")
MOST_THREADS = 512  # of one process; thousands exhaust its memory before they start
RUNTIMES = ("torch", "onnxruntime")  # in which a latency can be measured


@dataclass(frozen=True, kw_only=True)
class TrainConfig(_Checked):
    """How a network is trained by SGD on labelled images."""

    epochs: int = 30
    lr: float = 0.1
    schedule: str = "cosine"
    batch_size: int = 128
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    crop: int | None = None  # pixels of border for random crops, 0 for none; by default an eighth of the side
    flip: bool | None = None  # mirror at random; by default colour images only: a mirrored digit is another
    cutout: int = 0  # side of the square that is blanked; 0 switches it off
    seed: int = 0

    def __post_init__(self) -> None:
        _whole("epochs", self.epochs, 0)
        _within("lr", self.lr, 0.0)
        _one_of("schedule", self.schedule, SCHEDULES)
        _whole("batch_size", self.batch_size, 1)
        _within("momentum", self.momentum, 0.0, 1.0)
        _within("weight_decay", self.weight_decay, 0.0)
        _within("label_smoothing", self.label_smoothing, 0.0, 1.0)
        if self.crop is not None:
            _whole("crop", self.crop, 0)
        _whole("cutout", self.cutout, 0)
        _whole("seed", self.seed, 0, 2**63 - 1)
        if self.nesterov and self.momentum == 0.0:
            raise InputError("nesterov needs momentum above 0; set nesterov to false or momentum to e.g. 0.9")

    def fitted(self, image_shape: tuple[int, int, int]) -> "TrainConfig":
        """The same options with crop and flip decided, where they were left open, by the images."""
        channels, height, width = image_shape
        crop = min(height, width) // 8 if self.crop is None else self.crop
        flip = channels == 3 if self.flip is None else self.flip
        return replace(self, crop=crop, flip=flip)


STRATEGIES = ("guided", "paper")
USUAL_SAMPLE = 1000  # the paper's

# Where the paper has another value than we: its search to the letter.
_PAPER_SEARCH: dict[str, Any] = {
    "strategy": "paper",
    "generations": 10,
    "evaluation": "finetune",
    "encoding": "paper",
    "depth": False,
}
_PAPER_FINETUNE: dict[str, Any] = {
    "epochs": 50,
    "lr": 0.01,
    "schedule": "constant",
    "distill": 0.0,
    "keep_best": False,
}


@dataclass(frozen=True, kw_only=True)
class SearchConfig(_Checked):
    """The search and how one candidate is evaluated; `SearchConfig.paper()` is the paper's.

    "guided" varies widths and orders and keeps the best at every cost; it looks at `low`, `high`, `bins`
    and `focus`.
    "paper" flips bits; it looks at `mutation`, `selection` and `parents`. Options whose names start with
    eval are those of the evaluation "finetune".

    The paper is silent on batch size, momentum, weight decay, augmentation and schedule of its
    evaluation; the choices here are SGD with momentum 0.9 at a constant rate, batches of 100 and the
    crops and mirroring of ordinary training. Without these, lightly pruned networks learn the sample
    by heart (resnet20 on CIFAR-10, one unfinished search: 1-28 % error at 12-26 % of FLOPs cut), which
    pulls the knee towards light pruning.
    """

    strategy: str = "guided"
    offspring: int = 20
    generations: int = 15
    low: float = 0.15  # range of cost that is searched, as shares of the original's
    high: float = 0.85
    bins: int = 16  # of cost, of each of which the best is kept
    focus: float | None = None  # share of the original's cost at which half of the effort goes; see `limits`
    mutation: float = 0.1
    selection: str = "plus"
    parents: int = 1  # rho: how many of the three are recombined for one offspring
    sample: int | None = None  # images; by default USUAL_SAMPLE, or as many as the data has balanced
    evaluation: str = "refit"
    eval_epochs: int = 5
    eval_lr: float = 0.1
    eval_schedule: str = "constant"
    eval_batch_size: int = 100
    eval_momentum: float = 0.9
    eval_weight_decay: float = 0.0
    eval_augment: bool = True  # random crops, and mirroring of colour images, while a candidate is trained
    objective: str = "flops"
    latency_runtime: str = "torch"  # what a latency is one in, as an objective or a limit
    latency_batch: int = 1
    latency_threads: int = 1
    encoding: str = "full"  # "paper" leaves alone the layers the paper leaves alone; "full" prunes all
    min_channels: int = 1
    round_to: int | None = None  # by default what is measured to be fast; any in the paper's search
    prune_linear: bool = False  # hidden units of linear layers may go, as those of a transformer's MLPs
    depth: bool = True  # whole branches may go; in the paper every layer keeps at least one filter
    exclude: tuple[str, ...] = ()
    threads: int = 1  # torch threads a candidate; part of the result's bits, hence of the options
    seed: int = 0

    @classmethod
    def paper(cls, **changes: Any) -> "SearchConfig":
        """The paper's search, but for what is changed."""
        return cls(**{**_PAPER_SEARCH, **changes})

    @property
    def multiples(self) -> int | None:
        """What `ChannelGraph` is told to round widths to."""
        return 1 if self.round_to is None and self.strategy == "paper" else self.round_to

    def __post_init__(self) -> None:
        _one_of("strategy", self.strategy, STRATEGIES)
        _whole("offspring", self.offspring, 1, 100_000)  # all of a generation are held at once
        _whole("generations", self.generations, 1, 1_000_000)
        _within("low", self.low, 0.001, 1.0)
        _within("high", self.high, 0.001, 1.0)
        if self.low >= self.high:
            raise InputError(f"low must lie below high, got {self.low} and {self.high}")
        _whole("bins", self.bins, 1, 10_000)
        if self.focus is not None:
            _within("focus", self.focus, 0.001, 1.0)
        _within("mutation", self.mutation, 0.0, 1.0)
        _one_of("selection", self.selection, ("plus", "comma"))
        if self.selection == "comma" and self.offspring < 3:
            raise InputError(
                "comma selection picks three among the offspring: "
                f"offspring must be at least 3, got {self.offspring}"
            )
        _whole("parents", self.parents, 1)
        if self.parents > 3:
            raise InputError(f"parents must be 1, 2 or 3 (there are three to pick from), got {self.parents}")
        if self.sample is not None:
            _whole("sample", self.sample, 1)
        _text("evaluation", self.evaluation)
        _whole("eval_epochs", self.eval_epochs, 0)
        _within("eval_lr", self.eval_lr, 0.0)
        _one_of("eval_schedule", self.eval_schedule, SCHEDULES)
        _whole("eval_batch_size", self.eval_batch_size, 1)
        _within("eval_momentum", self.eval_momentum, 0.0, 1.0)
        _within("eval_weight_decay", self.eval_weight_decay, 0.0)
        _text("objective", self.objective)
        _one_of("latency_runtime", self.latency_runtime, RUNTIMES)
        _whole("latency_batch", self.latency_batch, 1, 100_000)
        _whole("latency_threads", self.latency_threads, 1, MOST_THREADS)
        _one_of("encoding", self.encoding, ("paper", "full"))
        _whole("min_channels", self.min_channels, 1)
        if self.round_to is not None:
            _whole("round_to", self.round_to, 1)
        object.__setattr__(self, "exclude", tuple(self.exclude))
        _whole("threads", self.threads, 1, MOST_THREADS)
        _whole("seed", self.seed, 0, 2**63 - 1)

    def idle(self) -> list[str]:
        """Options that were changed though nothing looks at them with this strategy and evaluation.

        >>> SearchConfig(mutation=0.2).idle(), SearchConfig.paper(mutation=0.2).idle()
        (['mutation'], [])
        """
        guided, paper = ["low", "high", "bins", "focus"], ["mutation", "selection", "parents"]
        unseen = guided if self.strategy == "paper" else paper
        if self.evaluation in ("refit", "recalibrate"):
            unseen += [field.name for field in fields(self) if field.name.startswith("eval_")]
        usual = {field.name: field.default for field in fields(self)}
        return [name for name in unseen if getattr(self, name) != usual[name]]

    @property
    def evaluations(self) -> int:
        """Candidates one run evaluates: 3 + offspring at the start, offspring each later generation."""
        return 3 + self.offspring + (self.generations - 1) * self.offspring

    def training(self, seed: int) -> TrainConfig:
        """The brief fine-tuning of one candidate as a training job."""
        return TrainConfig(
            epochs=self.eval_epochs,
            lr=self.eval_lr,
            schedule=self.eval_schedule,
            batch_size=self.eval_batch_size,
            momentum=self.eval_momentum,
            nesterov=False,
            weight_decay=self.eval_weight_decay,
            crop=None if self.eval_augment else 0,
            flip=None if self.eval_augment else False,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TrainConfig):
    """How the three picks are fine-tuned on the whole training set; `FinetuneConfig.paper()` is the paper's.

    Ours starts from refitted weights, which a high rate would undo: ResNet20 on CIFAR-10 at 35 % of its
    FLOPs, 20.3 % after the refit, came in 156 steps of distillation to 15.1 % at a rate that falls from
    0.01, to 18.4 % from 0.03 and to 17.2 % with a one-cycle rate of 0.03.
    """

    epochs: int = 10
    lr: float = 0.01
    schedule: str = "cosine"
    distill: float = 0.9  # share of the loss that follows the original network's outputs
    temperature: float = 4.0
    from_scratch: bool = False  # weights re-drawn before training, as in the paper's last experiment
    # Some training images are set aside, and where a network errs less on them before fine-tuning than after
    # it, the former is kept. Crops and mirroring that nobody asked for are left out if the original errs
    # clearly more on images so changed.
    keep_best: bool = True

    @classmethod
    def paper(cls, **changes: Any) -> "FinetuneConfig":
        """The paper's fine-tuning, but for what is changed."""
        return cls(**{**_PAPER_FINETUNE, **changes})

    def __post_init__(self) -> None:
        super().__post_init__()
        _within("distill", self.distill, 0.0, 1.0)
        _within("temperature", self.temperature, 0.1)
