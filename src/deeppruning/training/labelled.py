"""Lessons of labelled images: cross-entropy, distillation where there is a teacher, and augmentation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.config import TrainConfig
from deeppruning.data.batches import Augment, Batches, leaves_one_image
from deeppruning.data.stream import Images, ImageStream
from deeppruning.genome import derived_seed
from deeppruning.system.device import precision_of
from deeppruning.training.distillation import Loss
from deeppruning.training.evaluate import check_outputs, image_format_for
from deeppruning.training.lesson import Lesson, Taught


@dataclass(frozen=True, eq=False)
class Labelled(Lesson):
    """Labelled images in batches, augmented as the options say."""

    train: Images
    config: TrainConfig
    loss: Loss
    device: torch.device
    precision: torch.dtype = torch.float32
    penalty: Callable[[nn.Module], Tensor] | None = None  # a regulariser of the weights
    memory_format: torch.memory_format = torch.channels_last  # of the images

    @classmethod
    def of(
        cls,
        model: nn.Module,
        train: Images,
        config: TrainConfig,
        loss: Loss,
        device: torch.device,
        penalty: Callable[[nn.Module], Tensor] | None = None,
    ) -> "Labelled":
        """For a network, which is moved to the device: images in its precision, as its code takes them."""
        memory_format = image_format_for(model.to(device), train.image_shape, device)
        return cls(train, config, loss, device, precision_of(model), penalty, memory_format)

    def batches(self, epoch: int) -> Batches:
        """The images in an order, and augmented, by seed and epoch."""
        config = self.config.fitted(self.train.image_shape)
        generator = torch.Generator().manual_seed(derived_seed(config.seed, epoch, "batches"))
        return Batches(
            self.train,
            config.batch_size,
            shuffle=True,
            augment=Augment(crop=config.crop or 0, flip=bool(config.flip), cutout=config.cutout),
            generator=generator,
            device=self.device,
            drop_last=leaves_one_image(len(self.train), config.batch_size),
            precision=self.precision,
            memory_format=self.memory_format,
        )

    def taught(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Taught:
        """The loss against labels and teacher."""
        images, labels = batch
        with self.loss.watch(model) as seen:
            outputs = model(images)
            check_outputs(outputs, len(labels), self.train.num_classes)
            loss = self.loss(images, outputs, labels, seen)
        if self.penalty is not None:
            loss = loss + self.penalty(model)
        return Taught(loss, len(labels), (outputs.detach().argmax(dim=1) != labels).sum())

    @property
    def teacher(self) -> nn.Module | None:
        """The one whose outputs are distilled."""
        return self.loss.teacher

    @property
    def readers(self) -> int:
        """Those of streamed images."""
        return self.train.reader_count if isinstance(self.train, ImageStream) else 0

    def description(self) -> dict[str, Any]:
        """Options, distillation and data."""
        data: dict[str, Any] = {
            "train_images": len(self.train),
            "image_shape": list(self.train.image_shape),
            "classes": list(self.train.classes),
        }
        if isinstance(self.train, ImageStream):
            data["data"] = self.train.identity
        loss = self.loss
        distilled = loss.teacher is not None and loss.distill > 0.0
        distillation = {"distill": loss.distill, "temperature": loss.temperature} if distilled else {}
        options = self.config.fitted(self.train.image_shape).to_table()
        options.pop("features", None)
        if distilled and loss.inside is not None:
            distillation["features"] = loss.inside.weight
        return {**options, **distillation, **data}
