"""Every option of training, the search and fine-tuning: our defaults, or the paper's by `paper()`.

>>> SearchConfig(offspring=4).evaluations
19
>>> SearchConfig.paper().evaluations
203
>>> SearchConfig(mutation=2.0)
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: mutation must lie in [0.0, 1.0], got 2.0
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from deeppruning.errors import InputError
from deeppruning.options import EVALUATION, FINETUNING, MACHINE, PRUNED, TRAINING, Options, option

SCHEDULES = ("constant", "cosine", "linear", "onecycle")
OPTIMIZERS = ("sgd", "muon")
PRECISIONS = ("auto", "float32", "bfloat16")
RUNTIMES = ("torch", "onnxruntime")  # in which a latency can be measured
STRATEGIES = ("guided", "paper")
USUAL_SAMPLE = 1000  # the paper's
USUAL_EPOCHS = 10  # of fine-tuning
USUAL_GENERATIONS = 4
_MOST_THREADS = 512  # of one process; thousands exhaust its memory before they start
_LARGEST_SEED = 2**63 - 1


_train = partial(option, heading=TRAINING)
_evaluation = partial(option, heading=EVALUATION)
_pruned = partial(option, heading=PRUNED)
_finetune = partial(option, heading=FINETUNING)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Options):
    """How a network is trained on labelled images."""

    epochs: float | None = _train(30, "Number of epochs; the last one may be a part, as in 0.25 or 1.5.")
    lr: float | None = _train(0.1, "Learning rate; the peak, if the schedule changes it.")
    optimizer: str = _train(
        "sgd", "Optimizer: sgd; or muon, which is Muon for convolution and linear weights and Adam for the "
        "rest, with a learning rate relative to the norm of each weight.", choices=OPTIMIZERS,
    )  # fmt: skip
    schedule: str = _train("cosine", "Learning rate schedule.", choices=SCHEDULES)
    batch_size: int = _train(128, "Batch size.", low=1)
    momentum: float = _train(0.9, "Momentum of SGD.", high=1.0)
    nesterov: bool = _train(True, "Use Nesterov momentum.")
    weight_decay: float = _train(5e-4, "Weight decay of SGD (L2 penalty).")
    label_smoothing: float = _train(
        0.0, "Label smoothing: fraction of the target spread over all classes.", high=1.0, unprefixed=True
    )
    crop: int | None = _train(
        None,
        "Padding in pixels for random crops; 0 for no crops.",
        default_text="an eighth of the side",
        unprefixed=True,
    )
    flip: bool | None = _train(
        None,
        "Flip images horizontally at random.",
        default_text="on for colour images, off for gray ones",
        unprefixed=True,
    )
    cutout: int = _train(
        0, "Side in pixels of the square that is masked at random; 0 for none.", unprefixed=True
    )
    precision: str = _train(
        "auto", "Number format of layers in training: float32; bfloat16, with weights in float32; or auto, "
        "which is bfloat16 on a GPU that supports it.", choices=PRECISIONS,
    )  # fmt: skip
    seed: int = _train(0, "Random seed.", high=_LARGEST_SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and float(self.epochs).is_integer():
            object.__setattr__(self, "epochs", int(self.epochs))  # 10 in files and tables, not 10.0
        if self.nesterov and self.momentum == 0.0:
            raise InputError("nesterov needs momentum above 0; set nesterov to false or momentum to e.g. 0.9")

    @property
    def length(self) -> float:
        """The number of epochs."""
        if self.epochs is None:
            raise InputError("the number of epochs is not settled yet; give epochs")
        return self.epochs

    @property
    def rounds(self) -> int:
        """The number of epochs, the last of which may be a part."""
        return math.ceil(self.length)

    @property
    def peak(self) -> float:
        """The highest learning rate."""
        if self.lr is None:
            raise InputError("the learning rate is not settled yet; give lr")
        return self.lr

    def steps(self, batches: int) -> int:
        """The number of steps of the whole training, if an epoch has this many; each epoch has one at least.

        >>> [TrainConfig(epochs=epochs).steps(4) for epochs in (0, 0.01, 0.5, 1.1)]
        [0, 1, 2, 5]
        """
        begun = self.rounds - 1  # epochs before the last
        return begun * batches + max(1, round((self.length - begun) * batches)) if self.length else 0

    def fitted(self, image_shape: tuple[int, int, int]) -> "TrainConfig":
        """The same options with crop and flip, where they are None, chosen for these images."""
        channels, height, width = image_shape
        crop = min(height, width) // 8 if self.crop is None else self.crop
        flip = channels == 3 if self.flip is None else self.flip
        return replace(self, crop=crop, flip=flip)


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Options):
    """The search and how one candidate is evaluated; `SearchConfig.paper()` is the paper's.

    "guided" varies widths and orders and keeps the best candidate in every cost range; it uses `low`,
    `high`, `bins` and `focus`. "paper" flips bits; it uses `mutation`, `selection` and `parents`. Options
    that start with eval belong to the evaluation "finetune".

    The paper does not state batch size, momentum, weight decay, augmentation and schedule of its
    evaluation; the choices here are SGD with momentum 0.9 at a constant rate, batches of 100 and the
    crops and flips of ordinary training. Without these, lightly pruned networks memorize the sample
    (resnet20 on CIFAR-10, one unfinished search: 1-28 % error at 12-26 % of FLOPs cut), which
    pulls the knee towards light pruning.
    """

    strategy: str = option("guided", "Search strategy; set by --preset.", choices=STRATEGIES, paper="paper")
    offspring: int = option(  # all candidates of a generation are in memory at once
        10, "Number of new candidates per generation (lambda).", low=1, high=100_000, paper=20, common=True
    )
    generations: int | None = option(  # None, with minutes, as many as these allow
        None, "Number of generations.", low=1, high=1_000_000, paper=10, common=True,
        default_text=f"{USUAL_GENERATIONS}; with --minutes, as many as they allow",
    )  # fmt: skip
    minutes: float | None = option(
        None, "Time that the guided search takes: no generation is started that would end after it.",
        low=0.01, common=True, default_text="no limit",
    )  # fmt: skip
    low: float = option(
        0.15, "Guided search: lowest cost to search, as a fraction of the original network's cost.",
        low=0.001, high=1.0,
    )  # fmt: skip
    high: float = option(
        0.85, "Guided search: highest cost to search, also as a fraction.", low=0.001, high=1.0
    )
    bins: int = option(
        20, "Guided search: number of cost ranges; the best candidate of each is kept.", low=1, high=10_000
    )
    focus: float | None = option(
        None, "Guided search: fraction of the cost for which most offspring are made; --target sets it.",
        low=0.001, high=1.0, default_text="none",
    )  # fmt: skip
    mutation: float = option(0.1, "Paper's search: probability that a bit flips.", high=1.0, paper=0.1)
    selection: str = option(
        "plus", "Paper's search: whether parents compete with their offspring (plus) or not (comma).",
        choices=("plus", "comma"), paper="plus",
    )  # fmt: skip
    parents: int = option(
        1, "Paper's search: number of parents, of three, recombined for each offspring (rho).",
        low=1, high=3, paper=1,
    )  # fmt: skip
    sample: int | None = _evaluation(
        None, "Number of training images for the evaluation of candidates, the same number per class.",
        low=1, common=True,
        default_text=f"{USUAL_SAMPLE}, the paper's value, or as many as the classes allow",
    )  # fmt: skip
    evaluation: str = _evaluation(
        "refit", "How a candidate is evaluated.", paper="finetune"
    )  # names are checked by the registry, in a package above this one
    eval_epochs: int = _evaluation(5, "Evaluation finetune: number of epochs.", paper=5)
    eval_lr: float = _evaluation(0.1, "Evaluation finetune: learning rate.", paper=0.1)
    eval_schedule: str = _evaluation(
        "constant", "Evaluation finetune: learning rate schedule.", choices=SCHEDULES
    )
    eval_batch_size: int = _evaluation(100, "Evaluation finetune: batch size.", low=1)
    eval_momentum: float = _evaluation(0.9, "Evaluation finetune: momentum of SGD.", high=1.0)
    eval_weight_decay: float = _evaluation(0.0, "Evaluation finetune: weight decay.")
    eval_augment: bool = _evaluation(
        True, "Evaluation finetune: crop images at random, and flip colour images."
    )
    objective: str = option(
        "flops", "Cost to minimise besides the error. FUNCTION is your own function of the pruned network: "
        "package.module:name or file.py:name.", paper="flops", common=True,
    )  # fmt: skip
    latency_runtime: str = option("torch", "Runtime in which latency is measured.", choices=RUNTIMES)
    latency_batch: int = option(1, "Batch size with which latency is measured.", low=1, high=100_000)
    latency_threads: int = option(
        1, "Number of CPU threads with which latency is measured.", low=1, high=_MOST_THREADS
    )
    encoding: str = _pruned(
        "full", "Layers that are pruned: all that can be (full), or those of the paper (paper).",
        choices=("paper", "full"), paper="paper",
    )  # fmt: skip
    min_channels: int = _pruned(1, "Number of filters that each layer keeps at least.", low=1)
    round_to: int | None = _pruned(
        None, "Keep a multiple of this number of filters in each layer, for example 16 for AVX-512; 1 allows "
        "any number, as --preset paper does.", low=1, common=True,
        default_text="what is measured to be fast on this machine, such as 8 or 16",
    )  # fmt: skip
    prune_linear: bool = _pruned(
        False, "Also prune hidden units of linear layers, such as those in a transformer's MLPs.",
    )  # fmt: skip
    prune_heads: bool = _pruned(False, "Also prune whole heads of attention.")
    depth: bool = _pruned(
        True, "Allow removing whole branches, such as residual blocks; otherwise each layer keeps a filter.",
        paper=False,
    )  # fmt: skip
    exclude: tuple[str, ...] = _pruned(
        (), "Name of layers that are not pruned, with wildcards * and ?; may be repeated.",
        common=True, metavar="PATTERN", default_text="none",
    )  # fmt: skip
    threads: int = option(  # changes the last bits of results, hence an option of the search
        1, "Number of CPU threads per candidate; results are reproducible only with the same number.",
        heading=MACHINE, low=1, high=_MOST_THREADS,
    )  # fmt: skip
    memory: float = option(
        8.0, "Memory limit of one refit, in GB; if it is too low for all inputs, fewer are used.",
        heading=MACHINE, low=0.1, common=True,
    )  # fmt: skip
    seed: int = option(0, "Random seed.", high=_LARGEST_SEED, common=True)

    @property
    def multiples(self) -> int | None:
        """The number to a multiple of which `ChannelGraph` rounds widths."""
        return 1 if self.round_to is None and self.strategy == "paper" else self.round_to

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generations is None and (self.minutes is None or self.strategy != "guided"):
            object.__setattr__(self, "generations", USUAL_GENERATIONS)
        if self.low >= self.high:
            raise InputError(f"low must lie below high, got {self.low} and {self.high}")
        if self.selection == "comma" and self.offspring < 3:
            raise InputError(
                f"comma selection keeps three offspring: offspring must be at least 3, got {self.offspring}"
            )

    def idle(self) -> list[str]:
        """The options that were changed although this strategy and evaluation do not use them.

        >>> SearchConfig(mutation=0.2).idle(), SearchConfig.paper(mutation=0.2).idle()
        (['mutation'], [])
        """
        guided, paper = ("minutes", "low", "high", "bins", "focus"), ("mutation", "selection", "parents")
        unused = guided if self.strategy == "paper" else paper
        trains = self.evaluation not in ("refit", "recalibrate")
        return [
            name for name in self.changed() if name in unused or (name.startswith("eval_") and not trains)
        ]

    @property
    def evaluations(self) -> int:
        """Number of candidates that a run evaluates: 3 + offspring first, offspring per later generation.

        Where minutes limit the search alone, the number that it is planned for without them.
        """
        return 3 + self.offspring * (self.generations or USUAL_GENERATIONS)

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

    Ours starts from refitted weights, which a high learning rate would undo, and follows the outputs of the
    original; docs/results/finetuning.md has what each choice is worth.
    """

    epochs: float | None = _finetune(
        None, "Number of epochs on all training images, such as 0.25 or 20 (the paper: 100 for CIFAR-100).",
        paper=50, common=True, default_text=str(USUAL_EPOCHS),
    )  # fmt: skip
    minutes: float | None = _finetune(
        None, "Minutes to train each network, instead of epochs; the number of steps follows from the "
        "measured time of one.",
        low=0.01, high=1_000_000, paper=None, common=True, default_text="none", stated=False,
    )  # fmt: skip
    lr: float | None = _finetune(
        None, "Learning rate; the peak, if the schedule changes it.", paper=0.01,
        default_text="found by a short trial for each network",
    )  # fmt: skip
    schedule: str = _finetune(
        "linear", "Learning rate schedule.", choices=SCHEDULES, paper="constant", stated=False
    )
    batch_size: int = _finetune(64, "Batch size.", low=1, paper=128, stated=False)
    crop: int | None = _finetune(
        None,
        "Padding in pixels for random crops; 0 for no crops.",
        default_text="an eighth of the side; none if the original's error rises on cropped images",
        unprefixed=True,
    )
    flip: bool | None = _finetune(
        None,
        "Flip images horizontally at random.",
        default_text="on for colour images, unless the original's error rises on flipped ones",
        unprefixed=True,
    )
    distill: float = _finetune(
        0.9, "Distillation: fraction of the loss that compares outputs with those of the original.",
        high=1.0, paper=0.0, stated=False, unprefixed=True,
    )  # fmt: skip
    temperature: float = _finetune(
        16.0, "Distillation temperature; a high one approaches matching the logits.",
        low=0.1, paper=4.0, stated=False, unprefixed=True,
    )  # fmt: skip
    features: float = _finetune(
        1.0, "Distillation: how much activations at one place inside the network count beside the outputs; "
        "0 compares outputs alone.",
        paper=0.0, stated=False,
    )  # fmt: skip
    from_scratch: bool = _finetune(
        False,
        "Reinitialise the weights before fine-tuning, as in the paper's last experiment.",
        unprefixed=True,
    )
    precision: str = _finetune(
        "auto", "Number format of layers in training: float32; bfloat16, with weights in float32; or auto, "
        "which is bfloat16 on a GPU that supports it, or if its steps are measured to be faster on this CPU.",
        choices=PRECISIONS, paper="float32", stated=False,
    )  # fmt: skip
    keep_best: bool = _finetune(
        True, "Hold out some training images, and keep the weights from before fine-tuning if their error on "
        "these images is lower.", paper=False, stated=False, unprefixed=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minutes is not None and self.epochs is not None:
            raise InputError(
                f"epochs ({self.epochs:g}) and minutes ({self.minutes:g}) both limit the training: give one"
            )

    @classmethod
    def paper(cls, **changes: Any) -> "FinetuneConfig":
        """The paper's options, with these changes; minutes take the place of its epochs."""
        return super().paper().changed_by(changes)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "FinetuneConfig":
        """The options in a TOML table; runs of version 1.0.0, without features, compare outputs alone."""
        return super().from_table({"features": 0.0, **table})

    @property
    def trains(self) -> bool:
        """Whether there is any training."""
        return self.minutes is not None or self.epochs != 0

    def changed_by(self, given: Mapping[str, Any]) -> "FinetuneConfig":
        """The same with these options: minutes replace epochs, and epochs replace minutes."""
        instead = {"minutes": "epochs", "epochs": "minutes"}
        dropped = {other: None for name, other in instead.items() if given.get(name) is not None}
        return replace(self, **{**dropped, **given})

    def settled(self) -> "FinetuneConfig":
        """The same, with the usual number of epochs where nothing is said."""
        open_ = self.epochs is None and self.minutes is None
        return replace(self, epochs=USUAL_EPOCHS) if open_ else self
