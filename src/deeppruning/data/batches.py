"""Batches for the network, normalised and augmented as a whole.

>>> data = ImageSet(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 1]), ("a", "b"))
>>> [tuple(images.shape) for images, labels in Batches(data, batch_size=2)]
[(2, 1, 8, 8), (2, 1, 8, 8), (1, 1, 8, 8)]
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.stream import Images, ImageStream, Pass
from deeppruning.errors import DataError, InputError


def normalize(images: Tensor, normalization: Normalization | None) -> Tensor:
    """uint8 images scaled to 0..1 and normalised, as float32; float images as they are."""
    if images.dtype != torch.uint8:
        return images.to(torch.float32)
    if normalization is None:
        return images.to(torch.float32).div_(255)
    mean = torch.tensor(normalization.mean, device=images.device).view(-1, 1, 1)
    std = torch.tensor(normalization.std, device=images.device).view(-1, 1, 1)
    return images.to(torch.float32).sub_(mean * 255).div_(std * 255)


@dataclass(frozen=True)
class Augment:
    """Random crop after padding with zeros, random horizontal flip and cutout, for whole batches.

    `Batches` augments after normalising, so the zeros have the value of the mean image, as is customary for
    CIFAR. Random numbers are drawn only for what is switched on, in the order crop, flip, cutout.
    """

    crop: int = 0  # pixels of padding on each side
    flip: bool = False
    cutout: int = 0  # side of the square; clipped at the edge

    def __post_init__(self) -> None:
        for name in ("crop", "cutout"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0 pixels, got {getattr(self, name)}")

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """A new batch of the same shape and type."""
        if not (self.crop or self.flip or self.cutout):
            return batch
        number, channels, height, width = batch.shape

        def draw(below: int) -> Tensor:
            drawn = torch.randint(below, (number, 1), generator=generator, device=generator.device)
            return drawn.to(batch.device)

        # Where each output row and column comes from: one gather then does crop and flip at once.
        rows = torch.arange(height, device=batch.device).expand(number, height)
        columns = torch.arange(width, device=batch.device).expand(number, width)
        if self.crop:
            rows = rows + (draw(2 * self.crop + 1) - self.crop)
            columns = columns + (draw(2 * self.crop + 1) - self.crop)
        if self.flip:
            columns = torch.where(draw(2).bool(), width - 1 - columns, columns)
        inside_rows = (rows >= 0) & (rows < height)
        inside_columns = (columns >= 0) & (columns < width)
        source = rows.clamp(0, height - 1).unsqueeze(2) * width + columns.clamp(0, width - 1).unsqueeze(1)
        source = source.view(number, 1, -1).expand(number, channels, height * width)
        result = batch.reshape(number, channels, -1).gather(2, source).view_as(batch)
        inside = inside_rows.unsqueeze(2) & inside_columns.unsqueeze(1)
        if self.cutout:
            in_rows, in_columns = (
                self._cutout_span(draw(height), height),
                self._cutout_span(draw(width), width),
            )
            inside = inside & ~(in_rows.unsqueeze(2) & in_columns.unsqueeze(1))
        return result.mul_(inside.unsqueeze(1))

    def _cutout_span(self, centre: Tensor, size: int) -> Tensor:
        """Which positions along one side cutout blanks, around each centre."""
        start = centre - self.cutout // 2
        position = torch.arange(size, device=centre.device)
        return (position >= start) & (position < start + self.cutout)


def leaves_one_image(images: int, batch_size: int) -> bool:
    """Whether the last of several batches has a single image, which has no variance for a batch norm."""
    return images > batch_size > 1 and images % batch_size == 1


class Batches:
    """One epoch of (images, labels int64) each time it is iterated over, the images in `precision`.

    They lie in `memory_format`: `image_format_for` a network.

    The order of the epoch is drawn first, then the augmentation batch by batch, both from `generator` (by
    default one seeded with 0): the same generator state gives the same epoch. An ImageSet is moved to
    `device` once, before it is converted to float. An ImageStream is read ahead and moved batch by batch; the
    batches are the same. If its pictures are larger than the images, random crops are taken from the picture
    without padding, depending on the seed of the generator and the index of the image.
    """

    def __init__(
        self,
        data: Images,
        batch_size: int,
        *,
        shuffle: bool = False,
        augment: Augment | None = None,
        generator: torch.Generator | None = None,
        device: str | torch.device = "cpu",
        drop_last: bool = False,
        precision: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.channels_last,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        if len(data) == 0:
            raise InputError("the data set has no images; give at least one")
        if drop_last and batch_size > len(data):
            raise DataError(
                f"batches of {batch_size} need at least as many images, but there are {len(data)}: "
                f"every batch would be dropped; set the batch size to at most {len(data)}"
            )
        self.data = data
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.augment = augment
        self.generator = generator if generator is not None else torch.Generator().manual_seed(0)
        self.drop_last = drop_last
        self.precision = precision
        self.memory_format = memory_format
        self._device = torch.device(device)
        self._set = None
        if isinstance(data, ImageSet):
            self._set = replace(data, images=data.images.to(device), labels=data.labels.to(device))
        elif data.source.roomy and augment is not None:
            self.augment = replace(augment, crop=0)
        self._shift = augment is not None and augment.crop > 0

    def __len__(self) -> int:
        whole, rest = divmod(len(self.data), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self._read_batches(self._shuffled_order()):
            images = normalize(images, self.data.normalization)
            if self.augment is not None:
                images = self.augment(images, self.generator)
            yield images.to(self.precision).contiguous(memory_format=self.memory_format), labels

    def _shuffled_order(self) -> Tensor | None:
        if not self.shuffle:
            return None
        device = self.generator.device
        return torch.randperm(len(self.data), generator=self.generator, device=device)

    def _read_batches(self, order: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of images and labels in this order, before normalisation and augmentation."""
        starts = [number * self.batch_size for number in range(len(self))]
        places = [slice(start, min(start + self.batch_size, len(self.data))) for start in starts]
        if isinstance(self.data, ImageStream):
            order = torch.arange(len(self.data)) if order is None else order.cpu()
            this = Pass(self.generator.initial_seed(), self._shift)
            for images, labels in self.data.batches([order[place] for place in places], this):
                yield images.to(self._device), labels.to(self._device)
            return
        assert self._set is not None
        for place in places:
            chosen = place if order is None else order[place].to(self._device)
            yield self._set.images[chosen], self._set.labels[chosen]
