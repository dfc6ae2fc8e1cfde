"""What a teacher answers in one epoch, written down once for all networks that see the same batches.

A teacher takes about as long as a thin network takes to learn from it. Networks that are trained by the same
options see the same images, augmented alike and in the same order: the first one asks the teacher and the
others are told what it said, to the bit.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from deeppruning.training.tensors import read_tensors, tensor_bytes

MOST_BYTES = 2**25  # of an epoch: 50,000 images of 160 classes; more are not worth their room
_NAME = "answers"


class Teaching(nn.Module):
    """A teacher for one epoch that writes its answers to a file, or repeats those that are there."""

    def __init__(self, teacher: nn.Module, path: Path) -> None:
        super().__init__()
        self.teacher = teacher
        self._path = path
        self._known = read_tensors(path)[0][_NAME] if path.exists() else None
        self._told = 0  # of what is known
        self._heard: list[Tensor] | None = []  # None once there is too much of it
        self._bytes = 0

    def forward(self, images: Tensor) -> Tensor:
        if self._known is not None:
            self._told += len(images)
            return self._known[self._told - len(images) : self._told].to(images.device)
        answers: Tensor = self.teacher(images)
        self._bytes += answers.numel() * answers.element_size()
        if self._bytes > MOST_BYTES:
            self._heard = None
        if self._heard is not None:
            self._heard.append(answers.detach().cpu())
        return answers

    def write(self) -> None:
        """Keep what the teacher has answered since it was made, unless that is known or too much."""
        if self._known is None and self._heard:
            self._path.write_bytes(tensor_bytes({_NAME: torch.cat(self._heard)}, {}))
