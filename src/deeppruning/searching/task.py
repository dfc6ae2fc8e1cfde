"""What is done with a network: how a candidate is judged and how a pick is fine-tuned.

`Classification` is the paper's. Someone with boxes, masks or another loss writes a `Task` of their own:

    class Segmentation(Task):
        def candidate_error(self, model, seed): ...  # brief training, then an error to minimise
        def finetune(self, model, *, round, seed, checkpoint): ...  # training at length
        def test_error(self, model): ...
"""

import warnings
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.sample import split_balanced
from deeppruning.data.stream import Images
from deeppruning.searching.evaluations import EVALUATIONS, EvaluationKind, Trial
from deeppruning.system.device import device_or_cpu
from deeppruning.training.checkpoint import EpochReport
from deeppruning.training.distillation import MOST_BYTES, CachedTeacher, distillation_loss
from deeppruning.training.evaluate import evaluate, guessing_note, outputs_on
from deeppruning.training.loop import fit
from deeppruning.training.tensors import hash_tensors

REFITTED_ON = 500  # images at most; more of them make a refit slower and hardly better


@dataclass(frozen=True)
class Judgement:
    """What a candidate came to: its error and, where there is one, the score that the search selects on."""

    error: float
    score: float | None = None


class Task(ABC):
    """How networks are judged. Instances travel to worker processes: keep open files out of them.

    Everything random must follow from `seed`, so that a candidate comes to the same error wherever
    and whenever it is evaluated. One that raises, or whose error is not finite, has no error: it is kept
    with the reason and never selected.
    """

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "worst_error"):
            warnings.warn(
                f"{cls.__name__}.worst_error has no effect: a candidate that diverges or fails has no error",
                DeprecationWarning,
                stacklevel=2,
            )

    @abstractmethod
    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """Train the thin network briefly, in place, and return the error to minimise."""

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """The error and, where the search has something smoother to select on, that as well."""
        return Judgement(float(self.candidate_error(model, seed)))

    def refit_inputs(self, *, final: bool = False) -> Any:
        """A batch of inputs, as the network is called with them, on which networks are refitted; None: not.

        `final` is for the start of fine-tuning, when none need be kept aside to judge by.
        """
        return None

    def untrained_error(self, model: nn.Module) -> float | None:
        """The error of the original as it is, on the data candidates are judged on; a check for people."""
        return None

    def doubt(self, error: float, *, tested: bool = False) -> str:
        """A warning for people where this error of the original (on the test data: `tested`) is no good."""
        return ""

    def fingerprint(self) -> str | None:
        """Something that differs when the data candidates are judged on does; None skips the check."""
        return None

    @property
    def rounds(self) -> int:
        """In how many rounds fine-tuning comes; a run that is killed loses at most one of each pick."""
        return 1

    def begin(self, model: nn.Module, *, seed: int) -> None:
        """Change, in place, the weights that fine-tuning begins with; by default they stay as they are."""
        return

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport | None:
        """One round of training a pick at length, in place; rounds count from 1.

        Each round may run in another process: with more than one, write all that the next needs (the
        weights too) to the file `checkpoint` and read it back; in round 1 it is not there.
        """
        return None

    def slower(self, factor: float) -> "Task | None":
        """The same task with the learning rate of `finetune` times a factor below 1; None if it has none.

        A pick whose fine-tuning diverges starts again with it; without, it has failed.
        """
        return None

    def validation_error(self, model: nn.Module) -> float | None:
        """The error on data that neither the search nor fine-tuning sees; None where none is set aside.

        Limits of the error are checked by it, and whether fine-tuning helped: the test data must not decide
        what is chosen.
        """
        return None

    @property
    def keeps_best(self) -> bool:
        """Whether a pick that errs less on the data set aside before fine-tuning than after it stays so."""
        return True

    @property
    def validation_images(self) -> int | None:
        """How many images the error on data set aside is a share of; None: no such share."""
        return None

    def test_error(self, model: nn.Module) -> float | None:
        """The error on data never trained on, None where there is none."""
        return None

    @property
    def test_images(self) -> int | None:
        """How many answers that error is a share of, which tells how sure it is; None: no such share."""
        return None


@dataclass
class Classification(Task):
    """The paper's task: SGD on a class-balanced sample to judge, on the whole training set to finish."""

    sample: ImageSet
    search: SearchConfig
    device: str = "cpu"
    train: Images | None = None
    test: Images | None = None
    validation: Images | None = None  # set aside from training
    refitted: ImageSet | None = None  # the sample, where some of it is set aside, without that
    tuning: FinetuneConfig | None = None
    teacher: nn.Module | None = None
    identity: str = ""  # what tells training data that is not in memory from other data
    # Looked up where the task is made: workers need not know every name that this process does.
    evaluation: EvaluationKind | None = None
    _outputs: Tensor | None = field(default=None, init=False, repr=False)  # of the original, once asked for

    def __post_init__(self) -> None:
        if self.evaluation is None or self.evaluation.name != self.search.evaluation:
            self.evaluation = EVALUATIONS.find(self.search.evaluation)

    @property
    def refits(self) -> bool:
        """Whether candidates are refitted before they are judged."""
        assert self.evaluation is not None
        return self.evaluation.refits

    @cached_property
    def parts(self) -> tuple[ImageSet, ImageSet]:
        """The images that candidates are prepared on, and those they are judged on.

        A refit gives back what it has seen, so it is judged on other images; training, as in the paper, on
        the very same.
        """
        if not self.refits:
            return self.sample, self.sample
        return split_balanced(self.sample, min(REFITTED_ON, len(self.sample) // 2))

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """The evaluation that the options name, then the error."""
        return self.judge(model, seed).error

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """The evaluation that the options name, then the error; after a refit the divergence as well.

        The divergence from the original's outputs is smoother than a count of wrong answers: it tells two
        candidates apart that err alike.
        """
        if type(self).candidate_error is not Classification.candidate_error:
            return super().judge(model, seed)  # a subclass has its own way to tell the error
        assert self.evaluation is not None
        prepared, judged = self.parts
        self.evaluation.prepare(Trial(model, prepared, self.search, seed, self.device))
        if not self.refits or self.teacher is None:
            return Judgement(evaluate(model, judged, device=self.device).error)
        if self._outputs is None:
            self._outputs = outputs_on(deepcopy(self.teacher), judged, device=self.device)
        found = outputs_on(model, judged, device=self.device)
        wrong = int((found.argmax(1) != judged.labels).sum())
        return Judgement(wrong / len(judged), float(distillation_loss(found, self._outputs, 1.0)))

    def refit_inputs(self, *, final: bool = False) -> Tensor | None:
        """The normalised images of the part kept for it, or of the whole sample."""
        redrawn = self.tuning is not None and self.tuning.from_scratch
        if not self.refits or (final and redrawn):
            return None
        images = (self.refitted or self.sample) if final else self.parts[0]
        return normalize(images.images, images.normalization)

    def untrained_error(self, model: nn.Module) -> float | None:
        """The error on the images that candidates are judged on, without any training.

        It is asked for where the run is directed from, which may lack the GPU that the workers have.
        """
        return evaluate(model, self.parts[1], device=device_or_cpu(self.device)).error

    def doubt(self, error: float, *, tested: bool = False) -> str:
        """A network hardly better than guessing is not the one that was trained, or is fed wrongly."""
        images = self.test if tested else self.parts[1]
        which = "test images" if tested else "images of the sample"
        return "" if images is None else guessing_note(error, images.labels, which)

    def fingerprint(self) -> str:
        """A hash of the sample, and of what tells the rest apart where that is not in memory."""
        found = hash_tensors(self.sample.key_tensors())
        return f"{found} {self.identity}" if self.identity else found

    @property
    def rounds(self) -> int:
        """One epoch a round."""
        return 0 if self.tuning is None else self.tuning.epochs

    def begin(self, model: nn.Module, *, seed: int) -> None:
        """Re-drawn weights if asked for."""
        if self.tuning is not None and self.tuning.from_scratch:
            redraw_weights(model, seed)

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport | None:
        """SGD on all training images that are not set aside, with distillation if asked for.

        What the teacher answers in this round is read from a file beside the checkpoint, or written there.
        """
        assert self.train is not None
        assert self.tuning is not None
        teaching = None
        if self.teacher is not None and self.tuning.distill > 0:
            most = MOST_BYTES // max(1, self.rounds)
            teaching = CachedTeacher(self.teacher, answers_beside(checkpoint), most)
        reports = fit(
            model,
            self.train,
            replace(self.tuning, seed=seed),
            test=self.test,
            device=self.device,
            checkpoint=checkpoint,
            teacher=teaching,
            distill=self.tuning.distill,
            temperature=self.tuning.temperature,
            stop_after=1,
        )
        if teaching is not None:
            teaching.write()
        return reports[-1]

    def slower(self, factor: float) -> "Classification":
        """The same with a lower rate."""
        assert self.tuning is not None
        return replace(self, tuning=replace(self.tuning, lr=self.tuning.lr * factor))

    def validation_error(self, model: nn.Module) -> float | None:
        """The error on the images that are set aside; asked for where the run is directed from."""
        if self.validation is None:
            return None
        return evaluate(model, self.validation, device=device_or_cpu(self.device)).error

    @property
    def keeps_best(self) -> bool:
        """As the options of fine-tuning say; re-drawn weights are to be trained, whatever comes of it."""
        return self.tuning is not None and self.tuning.keep_best and not self.tuning.from_scratch

    @property
    def validation_images(self) -> int | None:
        """How many are set aside."""
        return None if self.validation is None else len(self.validation)

    def test_error(self, model: nn.Module) -> float | None:
        """The error on the test set."""
        return None if self.test is None else evaluate(model, self.test, device=self.device).error

    @property
    def test_images(self) -> int | None:
        """The size of the test set."""
        return None if self.test is None else len(self.test)

    def for_search(self) -> "Classification":
        """The same task without what only fine-tuning needs, so that workers are sent the sample alone."""
        teacher = self.teacher if self.refits else None
        return replace(self, train=None, test=None, validation=None, refitted=None, teacher=teacher)


def answers_beside(checkpoint: Path) -> Path:
    """Where what a teacher answers in a round of training is found by the next network, and left for it."""
    return checkpoint.with_name("answers")


def redraw_weights(model: nn.Module, seed: int) -> None:
    """New initial weights for every layer that knows how to draw them, in place."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
