"""The loss a network is trained by: cross-entropy, mixed with a teacher's outputs when there is one."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deeppruning.errors import InputError


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Mean over the batch of KL(teacher || student), both softened by `temperature`, times its square.

    The square keeps the size of the gradient the same whatever the temperature, so that the share
    given to the teacher means the same at each.
    """
    soft_student = F.log_softmax(student / temperature, dim=1)
    soft_teacher = F.log_softmax(teacher / temperature, dim=1)
    divergence = F.kl_div(soft_student, soft_teacher, reduction="batchmean", log_target=True)
    return divergence * temperature**2


@dataclass(frozen=True)
class Loss:
    """(1 - distill) x cross-entropy with label smoothing + distill x distillation from the teacher."""

    label_smoothing: float = 0.0
    teacher: nn.Module | None = None
    distill: float = 0.0
    temperature: float = 4.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.distill <= 1.0:
            raise InputError(f"distill must lie in [0, 1], got {self.distill}")
        if not self.temperature > 0.0:
            raise InputError(f"temperature must be above 0, got {self.temperature}")
        if self.distill > 0.0 and self.teacher is None:
            raise InputError(f"distill is {self.distill} but there is no teacher; give one or set it to 0")

    def __call__(self, images: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of one batch; the teacher, if it has a share, looks at the same augmented images."""
        outputs = _at_least_single(outputs)
        hard = F.cross_entropy(outputs, labels, label_smoothing=self.label_smoothing)
        if self.teacher is None or self.distill == 0.0:
            return hard
        with torch.no_grad():
            wanted = _at_least_single(self.teacher(images))
        soft = distillation_loss(outputs, wanted, self.temperature)
        return (1.0 - self.distill) * hard + self.distill * soft


def _at_least_single(outputs: Tensor) -> Tensor:
    """Sums of logarithms need more digits than networks of half precision have."""
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
