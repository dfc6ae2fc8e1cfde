"""The loss of training: cross-entropy, mixed with distillation from a teacher with cached outputs.

Evaluating the teacher takes about as long as training a thin network. Networks trained with the same options
see the same images, augmented alike and in the same order: the first one evaluates the teacher, the others
reuse its outputs, bit for bit. Each batch is recognised by its pixels, because data may have a random
generator of its own: outputs for other images are never reused.
"""

import zlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deeppruning.errors import InputError, WeightsError
from deeppruning.training.inside import Inside, Seen
from deeppruning.training.tensors import read_tensors, tensor_bytes

MOST_BYTES = 2**28  # of the outputs of all epochs of a training; more are not worth the disk space
PIXELS = 64  # of each image, by which a batch is recognised
_OUTPUTS, _MARKS = "answers", "marks"


def scale_of_scores(scores: Tensor) -> Tensor:
    """What `distillation_loss` at a high temperature comes to for a student that gives all classes one score.

    >>> scores = 10 * torch.eye(3)
    >>> equal = distillation_loss(torch.zeros(3, 3), scores, 1000.0)
    >>> bool(torch.isclose(scale_of_scores(scores), equal, rtol=0.01))
    True
    """
    return scores.var(dim=1, correction=0).mean() / 2


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Mean over the batch of KL(teacher || student), both softened by `temperature`, times its square.

    The square makes the size of the gradient independent of the temperature.
    """
    soft_student = F.log_softmax(student / temperature, dim=1)
    soft_teacher = F.log_softmax(teacher / temperature, dim=1)
    divergence = F.kl_div(soft_student, soft_teacher, reduction="batchmean", log_target=True)
    return divergence * temperature**2


@dataclass(frozen=True)
class Loss:
    """(1 - distill) x cross-entropy with label smoothing + distill x distillation from the teacher.

    With `inside`, distillation compares activations, too: each place counts in proportion to the outputs.
    """

    label_smoothing: float = 0.0
    teacher: nn.Module | None = None
    distill: float = 0.0
    temperature: float = 4.0
    inside: Inside | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.distill <= 1.0:
            raise InputError(f"distill must lie in [0, 1], got {self.distill}")
        if not self.temperature > 0.0:
            raise InputError(f"temperature must be above 0, got {self.temperature}")
        if self.distill > 0.0 and self.teacher is None:
            raise InputError(f"distill is {self.distill} but there is no teacher; give one or set it to 0")

    def watch(self, student: nn.Module) -> AbstractContextManager[Seen | None]:
        """Keeps activations of student and teacher inside the block, if they are compared."""
        if self.inside is None or self.teacher is None:
            return nullcontext()
        return self.inside.watch(student, self.teacher)

    def __call__(self, images: Tensor, outputs: Tensor, labels: Tensor, seen: Seen | None = None) -> Tensor:
        """The loss of one batch; the teacher sees the same augmented images."""
        outputs = _at_least_single(outputs)
        hard = F.cross_entropy(outputs, labels, label_smoothing=self.label_smoothing)
        if self.teacher is None or self.distill == 0.0:
            return hard
        with torch.no_grad():
            targets = _at_least_single(self.teacher(images))
        soft = distillation_loss(outputs, targets, self.temperature)
        if seen is not None:
            soft = soft + scale_of_scores(targets) * seen.distance()
        return (1.0 - self.distill) * hard + self.distill * soft


def _at_least_single(outputs: Tensor) -> Tensor:
    """Sums of logarithms need more digits than half precision has."""
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs


class CachedTeacher(nn.Module):
    """A teacher for one epoch that writes its outputs to a file, or reuses those in the file.

    Outputs of more than `most` bytes are not written.
    """

    def __init__(self, teacher: nn.Module, path: Path, most: int = MOST_BYTES) -> None:
        super().__init__()
        self.teacher = teacher
        self._path = path
        self._most = most
        self._cached = _read_outputs(path)
        self._new: list[Tensor] | None = [] if self._cached is None else None
        self._marks: list[int] = []
        self._reused = self._bytes = 0

    def forward(self, images: Tensor) -> Tensor:
        """The teacher's outputs for a batch: the cached ones if it is the same batch as then."""
        mark = _mark_of(images)
        if self._cached is not None:
            outputs, marks = self._cached
            place, end = len(self._marks), self._reused + len(images)
            if place < len(marks) and int(marks[place]) == mark and end <= len(outputs):
                self._marks.append(mark)
                self._reused = end
                return outputs[end - len(images) : end].to(images.device)
            self._cached = None
        result: Tensor = self.teacher(images)
        self._bytes += result.numel() * result.element_size()
        if self._bytes > self._most:
            self._new = None
        if self._new is not None:
            self._new.append(result.detach().cpu())
            self._marks.append(mark)
        return result

    def write(self) -> None:
        """Write the outputs of this epoch, unless some came from the file or they are too large."""
        if self._new:
            tensors = {_OUTPUTS: torch.cat(self._new), _MARKS: torch.tensor(self._marks)}
            self._path.write_bytes(tensor_bytes(tensors, {}))


def _mark_of(images: Tensor) -> int:
    """A number that tells one batch from another."""
    rows = images.detach().flatten(1)
    pixels = rows[:, :: max(1, rows.shape[1] // PIXELS)].float().cpu().contiguous()
    return zlib.crc32(pixels.numpy().tobytes())


def _read_outputs(path: Path) -> tuple[Tensor, Tensor] | None:
    """The cached outputs; None if there are none, or if the file is damaged."""
    if not path.exists():
        return None
    try:
        tensors, _ = read_tensors(path)
        return tensors[_OUTPUTS], tensors[_MARKS]
    except (WeightsError, KeyError):
        return None
