"""Tasks: how candidates are judged and selected networks fine-tuned; labelled images as such a task.

`Classification` is the paper's. For boxes, masks or another loss, write a `Task` of your own:

    class Segmentation(Task):
        def candidate_error(self, model, seed): ...  # brief training, then an error to minimise
        def finetune(self, model, *, round, seed, checkpoint): ...  # training at length
        def test_error(self, model): ...
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
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
from deeppruning.graph.calls import as_call
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.searching.evaluations import EVALUATIONS, EvaluationKind, Trial
from deeppruning.system.device import device_or_cpu, precision_of
from deeppruning.training.checkpoint import EpochReport
from deeppruning.training.distillation import MOST_BYTES, CachedTeacher, Loss, distillation_loss
from deeppruning.training.evaluate import evaluate, guessing_note, outputs_on, seconds_of_test
from deeppruning.training.inside import Inside
from deeppruning.training.labelled import Labelled
from deeppruning.training.loop import fit
from deeppruning.training.planning import leaves_open, plan_training
from deeppruning.training.tensors import hash_tensors

FEWEST_REFITTED, MOST_REFITTED = 128, 500  # inputs that candidates are refitted on, and judged by
NUMBERS = (
    2**21
)  # in these inputs together, between the limits: large images have more positions to learn from


def candidate_inputs(numbers: int) -> int:
    """The number of inputs of this many numbers each that a candidate is refitted on, at most.

    >>> candidate_inputs(3 * 32 * 32), candidate_inputs(3 * 224 * 224)
    (500, 128)
    """
    return min(max(NUMBERS // max(numbers, 1), FEWEST_REFITTED), MOST_REFITTED)


@dataclass(frozen=True)
class Judgement:
    """The error of a candidate and, if the search selects on something smoother, its score."""

    error: float
    score: float | None = None

    @property
    def judged(self) -> float:
        """What the search selects on: the score, or else the error."""
        return self.error if self.score is None else self.score


class Task(ABC):
    """How networks are judged. Instances are sent to worker processes: keep open files out of them.

    Everything random must follow from `seed`, so that a candidate has the same error wherever and whenever
    it is evaluated. A candidate whose evaluation raises, or whose error is not finite, is recorded with the
    reason and never selected.
    """

    @abstractmethod
    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """Train the thin network briefly, in place, and return the error to minimise."""

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """The error and, if the search is to select on something smoother, a score."""
        return Judgement(float(self.candidate_error(model, seed)))

    def refit_inputs(self, *, final: bool = False) -> Any:
        """A batch of inputs to refit networks on, as the network is called with them; None: no refit.

        This alone decides whether networks are refitted. `final` is for the start of fine-tuning, when no
        inputs have to be held out to judge by.
        """
        return None

    def untrained_error(self, model: nn.Module) -> float | None:
        """The error of the original as it is, on the data that candidates are judged on."""
        return None

    def doubt(self, error: float, *, tested: bool = False) -> str:
        """A warning if this error of the original (on the test data if `tested`) is suspiciously high."""
        return ""

    def fingerprint(self) -> str | None:
        """A text that differs if the data to judge candidates on differs; None skips the check."""
        return None

    @property
    def rounds(self) -> int:
        """The number of rounds of fine-tuning; a run that is killed loses at most one of each pick."""
        return 1

    def begin(self, model: nn.Module, *, seed: int) -> None:
        """Change the weights that fine-tuning begins with, in place; by default they stay as they are."""
        return

    def plan(self, model: nn.Module, *, seed: int) -> dict[str, Any]:
        """What is measured once for a network before its first round, as plain values; see `planned`."""
        return {}

    def planned(self, plan: Mapping[str, Any]) -> "Task":
        """The same task for the rounds of a network with this plan."""
        return self

    def of_network(self, recipe: Recipe) -> "Task":
        """The same task for the fine-tuning of one network, by the cut that made it."""
        return self

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport | None:
        """One round of fine-tuning a pick, in place; rounds count from 1.

        Each round may run in another process: with more than one, write all that the next round needs (the
        weights too) to the file `checkpoint`, and read it back; in round 1 it does not exist.
        """
        return None

    def slower(self, factor: float) -> "Task | None":
        """The same task with the learning rate of `finetune` times a factor below 1; None if it has none.

        A pick whose fine-tuning diverges starts again with it; without it, the pick has failed.
        """
        return None

    def validation_error(self, model: nn.Module) -> float | None:
        """The error on data held out from both search and fine-tuning; None if there is none.

        It decides whether limits of the error are met and whether fine-tuning helped: the test data must not
        decide what is chosen.
        """
        return None

    @property
    def keeps_best(self) -> bool:
        """Whether a pick keeps its weights before fine-tuning if their validation error is smaller."""
        return True

    @property
    def validation_images(self) -> int | None:
        """The number of images behind the validation error, if it is a share of them; else None."""
        return None

    def test_error(self, model: nn.Module) -> float | None:
        """The error on the test data, None if there is none."""
        return None

    @property
    def test_images(self) -> int | None:
        """The number of images behind the test error, if it is a share of them; else None."""
        return None


@dataclass
class Classification(Task):
    """The paper's task: candidates are judged on a class-balanced sample, picks fine-tuned on all images."""

    sample: ImageSet
    search: SearchConfig
    device: str = "cpu"
    train: Images | None = None
    test: Images | None = None
    validation: Images | None = None  # held out from training
    refitted: ImageSet | None = None  # the sample without its held-out images, if there are any
    tuning: FinetuneConfig | None = None
    teacher: nn.Module | None = None
    recipe: Recipe | None = None  # of the network that is fine-tuned
    identity: str = ""  # of training data that is not in memory
    # Looked up where the task is made: workers need not know every name that this process knows.
    evaluation: EvaluationKind | None = None
    _outputs: Tensor | None = field(default=None, init=False, repr=False)  # of the original, once asked for

    def __post_init__(self) -> None:
        if self.evaluation is None or self.evaluation.name != self.search.evaluation:
            self.evaluation = EVALUATIONS.find(self.search.evaluation)

    @property
    def _evaluation_kind(self) -> EvaluationKind:
        assert self.evaluation is not None
        return self.evaluation

    @property
    def refits(self) -> bool:
        """Whether candidates are refitted, and then judged on other images."""
        return self._evaluation_kind.refits

    @cached_property
    def parts(self) -> tuple[ImageSet, ImageSet]:
        """The images that candidates are prepared on, and those they are judged on.

        After a refit they are judged on other images; after training, as in the paper, on the same.
        """
        if not self.refits:
            return self.sample, self.sample
        most = candidate_inputs(self.sample.images[0].numel())
        refitted, rest = split_balanced(self.sample, min(most, len(self.sample) // 2))
        # Small images are cheap to judge by: all that are left.
        return refitted, rest if most == MOST_REFITTED else split_balanced(rest, most)[0]

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """The error after the evaluation that the options name."""
        return self.judge(model, seed).error

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """The error after the evaluation that the options name; after a refit the divergence as well.

        The divergence from the original's outputs is smoother than a count of wrong answers: it
        distinguishes candidates with equal errors.
        """
        if type(self).candidate_error is not Classification.candidate_error:
            return super().judge(model, seed)  # a subclass has its own error
        prepared, judged = self.parts
        self._evaluation_kind.prepare(Trial(model, prepared, self.search, seed, self.device))
        if not self.refits or self.teacher is None:
            return Judgement(evaluate(model, judged, device=self.device).error)
        if self._outputs is None:
            self._outputs = outputs_on(deepcopy(self.teacher), judged, device=self.device)
        outputs = outputs_on(model, judged, device=self.device)
        wrong = int((outputs.argmax(1) != judged.labels).sum())
        return Judgement(wrong / len(judged), float(distillation_loss(outputs, self._outputs, 1.0)))

    def refit_inputs(self, *, final: bool = False) -> Tensor | None:
        """The normalised images of the part kept for it or, if `final`, of the whole sample.

        None for an evaluation kind that does not refit, and before fine-tuning from re-drawn weights.
        """
        redrawn = self.tuning is not None and self.tuning.from_scratch
        if not self.refits or (final and redrawn):
            return None
        images = (self.refitted or self.sample) if final else self.parts[0]
        return normalize(images.images, images.normalization)

    def untrained_error(self, model: nn.Module) -> float | None:
        """The error on the images that candidates are judged on, without any training.

        It is computed in the main process, which may lack the GPU of the workers.
        """
        return evaluate(model, self.parts[1], device=device_or_cpu(self.device)).error

    def doubt(self, error: float, *, tested: bool = False) -> str:
        """A network hardly better than guessing has wrong weights or wrongly prepared inputs."""
        images = self.test if tested else self.parts[1]
        which = "test images" if tested else "images of the sample"
        return "" if images is None else guessing_note(error, images.labels, which)

    def fingerprint(self) -> str:
        """A hash of the sample, with the identity of data that is not in memory."""
        digest = hash_tensors(self.sample.key_tensors())
        return f"{digest} {self.identity}" if self.identity else digest

    @property
    def rounds(self) -> int:
        """One epoch per round; how many fit into a given time is known once a network is planned."""
        if self.tuning is None or not self.tuning.trains:
            return 0
        return 1 if self.tuning.minutes is not None else self.tuning.rounds

    def begin(self, model: nn.Module, *, seed: int) -> None:
        """Re-drawn weights if asked for."""
        if self.tuning is not None and self.tuning.from_scratch:
            redraw_weights(model, seed)

    def plan(self, model: nn.Module, *, seed: int) -> dict[str, Any]:
        """Epochs, learning rate and number format, where they are not given."""
        tuning = self.tuning
        if self.train is None or tuning is None or not tuning.trains:
            return {}
        teacher = self.teacher if tuning.distill > 0 else None
        inside = self._inside(model)
        loss = Loss(tuning.label_smoothing, teacher, tuning.distill, tuning.temperature, inside)
        device, options = torch.device(self.device), replace(tuning, seed=seed)
        lesson = Labelled.of(model, self.train, options, loss, device)
        if not leaves_open(lesson, options, device):
            return {}
        each_epoch = 0.0
        if tuning.minutes is not None and self.test is not None:
            each_epoch = seconds_of_test(model, self.test, device)
        return asdict(plan_training(model, lesson, options, device, each_epoch))

    def planned(self, plan: Mapping[str, Any]) -> "Classification":
        """The same with these epochs, this learning rate and this number format."""
        if not plan or self.tuning is None:
            return self
        tuning = replace(
            self.tuning, epochs=plan["epochs"], minutes=None, lr=plan["lr"],
            precision=plan.get("precision", self.tuning.precision),
        )  # fmt: skip
        return replace(self, tuning=tuning)

    def of_network(self, recipe: Recipe) -> "Classification":
        """The same, with which activations of the network and its original can be compared."""
        return replace(self, recipe=recipe)

    def _inside(self, model: nn.Module) -> Inside | None:
        """Where activations are compared with the original's, if they are."""
        tuning = self.tuning
        if self.recipe is None or self.teacher is None or self.train is None or tuning is None:
            return None
        if not tuning.distill * tuning.features:
            return None
        some = torch.randn(2, *self.train.image_shape, generator=torch.Generator().manual_seed(0))
        call = as_call(some.to(self.device, precision_of(model)))
        networks = model.to(self.device), self.teacher.to(self.device)
        inside = Inside.of(*networks, self.recipe, call, tuning.features)
        return inside if inside.places else None

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport | None:
        """Training on all training images that are not held out, with distillation if asked for.

        Unless its activations are needed, the teacher's answers in this round are read from a file beside the
        checkpoint, or written there.
        """
        assert self.train is not None
        assert self.tuning is not None
        inside = self._inside(model)
        teaching = self.teacher if self.tuning.distill > 0 else None
        if teaching is not None and inside is None:
            most = MOST_BYTES // max(1, self.rounds)
            teaching = CachedTeacher(teaching, answers_beside(checkpoint), most)
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
            inside=inside,
            stop_after=1,
        )
        if isinstance(teaching, CachedTeacher):
            teaching.write()
        return reports[-1]

    def slower(self, factor: float) -> "Classification":
        """The same with a lower rate, where the rate is settled."""
        assert self.tuning is not None
        lr = None if self.tuning.lr is None else self.tuning.lr * factor
        return replace(self, tuning=replace(self.tuning, lr=lr))

    def validation_error(self, model: nn.Module) -> float | None:
        """The error on the held-out images, computed in the main process."""
        if self.validation is None:
            return None
        return evaluate(model, self.validation, device=device_or_cpu(self.device)).error

    @property
    def keeps_best(self) -> bool:
        """As the options of fine-tuning say; re-drawn weights are always trained."""
        return self.tuning is not None and self.tuning.keep_best and not self.tuning.from_scratch

    @property
    def validation_images(self) -> int | None:
        """The number of held-out images."""
        return None if self.validation is None else len(self.validation)

    def test_error(self, model: nn.Module) -> float | None:
        """The error on the test set."""
        return None if self.test is None else evaluate(model, self.test, device=self.device).error

    @property
    def test_images(self) -> int | None:
        """The size of the test set."""
        return None if self.test is None else len(self.test)

    def for_search(self) -> "Classification":
        """The same task without the data of fine-tuning, so that workers are sent the sample alone."""
        teacher = self.teacher if self.refits else None
        return replace(self, train=None, test=None, validation=None, refitted=None, teacher=teacher)


def answers_beside(checkpoint: Path) -> Path:
    """The file of a teacher's answers in a round of training, shared by the networks of that round."""
    return checkpoint.with_name("answers")


def redraw_weights(model: nn.Module, seed: int) -> None:
    """Initialise every layer that has `reset_parameters` again, in place."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
