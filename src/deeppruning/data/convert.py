"""Turn what users have, arrays, tensors, a torch Dataset or a DataLoader, into an ImageSet or ImageStream.

>>> as_images((np.zeros((2, 8, 8, 3), np.uint8), [0, 1])).image_shape
(3, 8, 8)
"""

import hashlib
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)
from torch.utils.data.dataloader import default_collate

from deeppruning.data.images import ImageSet
from deeppruning.data.stream import Images, ImageSource, ImageStream, Pass, read_ahead
from deeppruning.errors import DataError
from deeppruning.system.user_code import user_errors

CHANNELS = (1, 3, 4)  # sizes that tell a channel dimension from height and width
MOST_CLASSES = 100_000  # larger labels are not class indices
_COMPARED = 16  # items to compare with the list of labels that a Dataset keeps
_AT_ONCE = 64  # items to read at once where only labels are needed


def as_images(obj: Any) -> Images:
    """An ImageSet or ImageStream unchanged, arrays or tensors as an ImageSet, a Dataset as an ImageStream.

    Arrays and tensors are given as a pair (images, labels) or a TensorDataset. A Dataset is one of (image,
    label) with a length. Of a DataLoader its Dataset, `num_workers` and `collate_fn` are used; batches and
    their order are those of the training.
    """
    dataset, readers, collate = _parts_of_loader(obj)
    if isinstance(dataset, Images):
        return dataset
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2 and collate is None:
        dataset = dataset.tensors
    if isinstance(dataset, (tuple, list)) and len(dataset) == 2 and is_array(dataset[0]):
        return as_image_set(*dataset)
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"{type(dataset).__name__} gives its items in its own order only, but the search samples them by "
            "class: give a Dataset with __len__ and __getitem__"
        )
    if is_array(dataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(
            f"cannot take images from {type(obj).__name__}; give an ImageSet, a pair (images, labels) of "
            "arrays or tensors, or a torch Dataset of (image, label) with a length"
        )
    return _stream_of_dataset(DatasetItems(dataset, collate), readers)


def as_image_set(images: Any, labels: Any, classes: tuple[str, ...] | None = None) -> ImageSet:
    """Arrays or tensors as an ImageSet; classes without names are numbered.

    Images have the shape (N, C, H, W), (N, H, W, C) with 1, 3 or 4 channels, or (N, H, W). Whole numbers in
    0..255 become uint8, floats are taken as normalised already.
    """
    indices = as_labels(labels)
    return ImageSet(_image_tensor(images), indices, numbered(indices) if classes is None else classes)


def is_array(obj: Any) -> bool:
    """Whether this is a numpy array or a tensor."""
    return isinstance(obj, (np.ndarray, Tensor))


def _image_tensor(images: Any) -> Tensor:
    """An array or tensor of images as (N, C, H, W), uint8 or float."""
    tensor = _array_as_tensor(images, "images")
    if tensor.ndim == 3:
        tensor = tensor.unsqueeze(1)
    if tensor.ndim != 4:
        raise DataError(f"images must have shape (N, C, H, W) or (N, H, W, C), got {tuple(tensor.shape)}")
    if tensor.shape[3] in CHANNELS and tensor.shape[1] not in CHANNELS:
        tensor = tensor.permute(0, 3, 1, 2).contiguous()
    if tensor.is_floating_point():
        if not bool(torch.isfinite(tensor).all()):
            raise DataError("images hold values that are not finite (nan or inf); remove or replace them")
        return tensor.to(torch.float32)
    if tensor.dtype != torch.uint8 and tensor.numel():
        low, high = int(tensor.min()), int(tensor.max())
        if low < 0 or high > 255:
            raise DataError(f"whole-number images must lie in 0..255, got {low}..{high}")
    return tensor.to(torch.uint8)


def _array_as_tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        # A copy, because a tensor must not write into an array that the user or a file owns.
        return torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} cannot be read as numbers: {error}") from error


def numbered(labels: Tensor) -> tuple[str, ...]:
    """Names for classes that have none: their numbers."""
    return tuple(str(index) for index in range(int(labels.max()) + 1 if len(labels) else 0))


def as_labels(labels: Any) -> Tensor:
    """Class indices as int64; raises DataError for anything else."""
    tensor = _array_as_tensor(labels, "labels")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise DataError(f"labels must be whole-number class indices, got {tensor.dtype}")
    if tensor.ndim == 2 and tensor.shape[1] == 1:
        tensor = tensor.squeeze(1)
    if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < MOST_CLASSES:
        raise DataError(
            f"labels must be class indices in 0..{MOST_CLASSES - 1}, "
            f"got {int(tensor.min())}..{int(tensor.max())}"
        )
    return tensor.to(torch.int64)


@dataclass(frozen=True, eq=False)
class DatasetItems(ImageSource):
    """The items (image, label) of a Dataset; its random choices follow from the key."""

    dataset: Any
    collate: Any = None  # the user's own collate_fn
    size: tuple[int, int] | None = None  # height and width to resize images to
    draws = True

    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """Call the Dataset; errors name the item."""
        random.seed(key)
        np.random.seed(key % 2**32)
        torch.default_generator.manual_seed(key)  # of the CPU alone: a GPU's is for layers
        image, label = self._dataset_item(index)
        tensor = _item_image(image, index)
        if self.size is not None and tuple(tensor.shape[1:]) != self.size:
            tensor = interpolate(tensor[None], size=self.size, mode="bilinear", antialias=True)[0]
        return tensor, _item_label(label, index)

    def identity(self) -> str:
        """By the type of the Dataset and the number of its items."""
        described = f"{type(self.dataset).__name__} {len(self.dataset)} {self.size}"
        return hashlib.sha256(described.encode()).hexdigest()

    def _dataset_item(self, index: int) -> tuple[Any, Any]:
        """An image and its label from the user's Dataset."""
        with user_errors(f"item {index} of the Dataset cannot be read: it", DataError):
            item = self.dataset[index]
            if self.collate is not None:
                images, labels = self.collate([item])
                return images[0], labels[0]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(
                f"item {index} of the Dataset must be a pair (image, label), got {type(item).__name__}"
            )
        return item[0], item[1]


def _item_image(image: Any, index: int) -> Tensor:
    """The image of one item as (C, H, W), uint8 or float32."""
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    if not is_array(image) or image.ndim not in (2, 3):
        raise DataError(
            f"item {index} of the Dataset must have an image of shape (C, H, W), (H, W, C) or (H, W), "
            f"got {tuple(image.shape) if is_array(image) else type(image).__name__}"
        )
    # (H, W) becomes (1, H, W) and then a batch of one, so that one rule serves single images and sets.
    return _image_tensor(image[None] if image.ndim == 3 else image[None, None])[0]


def _item_label(label: Any, index: int) -> int:
    """The label of one item as a class index."""
    try:
        value = int(label)
    except (TypeError, ValueError) as error:
        raise DataError(f"item {index} of the Dataset must have a class index, got {label!r}") from error
    if value != label:
        raise DataError(f"item {index} of the Dataset must have a whole class index, got {label!r}")
    return value


def resized(stream: ImageStream, height: int, width: int) -> ImageStream:
    """The same stream with every image at this size."""
    if stream.image_shape[1:] == (height, width):
        return stream
    if not isinstance(stream.source, DatasetItems):
        raise DataError("pictures of a folder are resized when the folder is loaded: give image_size there")
    source = replace(stream.source, size=(height, width))
    return replace(stream, source=source, image_shape=(stream.image_shape[0], height, width))


def _parts_of_loader(obj: Any) -> tuple[Any, int, Any]:
    """The Dataset, the number of processes that read it, and the collate_fn if it is not torch's own."""
    if not isinstance(obj, DataLoader):
        return obj, 0, None
    if not isinstance(obj.dataset, IterableDataset):
        sampler = obj.sampler if obj.batch_size is not None else None
        if not isinstance(sampler, (RandomSampler, SequentialSampler)) or (
            isinstance(sampler, RandomSampler) and sampler.replacement
        ):
            chosen = sampler or obj.batch_sampler
            way = "batches of its own" if chosen is None else type(chosen).__name__
            raise DataError(
                f"the DataLoader chooses items by {way}, but training here uses all of them: "
                "give the Dataset, or torch.utils.data.Subset(dataset, indices)"
            )
    collate = None if obj.collate_fn is default_collate else obj.collate_fn
    return obj.dataset, obj.num_workers, collate


def _stream_of_dataset(source: DatasetItems, readers: int) -> ImageStream:
    """A Dataset as a stream: its first image gives the shape, one pass over it the labels."""
    count = len(source.dataset)
    if count == 0:
        raise DataError("the Dataset has no items; give at least one image")
    image = next(read_ahead(source, [[0]], 0, Pass()))[0][0]
    labels = _labels_of_dataset(source, readers)
    channels, height, width = image.shape
    return ImageStream(
        source=source,
        indices=torch.arange(count),
        labels=labels,
        classes=_class_names(source.dataset) or numbered(labels),
        image_shape=(channels, height, width),
        dtype=image.dtype,
        readers=readers,
    )


def _labels_of_dataset(source: DatasetItems, readers: int) -> Tensor:
    """From the list that the Dataset keeps, if its items agree with it; else by reading all of them."""
    count = len(source.dataset)
    listed = _listed_labels(source.dataset)
    if listed is not None and len(listed) == count:
        compared = range(0, count, -(-count // _COMPARED))
        if (
            _read_dataset_labels(source, [[index] for index in compared], 0)
            == listed[list(compared)].tolist()
        ):
            return listed
    batches = [list(range(start, min(start + _AT_ONCE, count))) for start in range(0, count, _AT_ONCE)]
    return as_labels(_read_dataset_labels(source, batches, readers))


def _read_dataset_labels(source: DatasetItems, batches: list[list[int]], readers: int) -> list[int | None]:
    return [label for _, labels in read_ahead(source, batches, readers, Pass()) for label in labels]


def _listed_labels(dataset: Any) -> Tensor | None:
    """The labels of all items without reading any, if the Dataset keeps a list of them."""
    if isinstance(dataset, Subset):
        whole = _listed_labels(dataset.dataset)
        return None if whole is None else whole[list(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [_listed_labels(part) for part in dataset.datasets]
        listed_parts = [part for part in parts if part is not None]
        return torch.cat(listed_parts) if len(listed_parts) == len(parts) else None
    if isinstance(dataset, TensorDataset):
        listed: Any = dataset.tensors[-1]
    else:
        listed = getattr(dataset, "targets", None)
        listed = getattr(dataset, "labels", None) if listed is None else listed
    if listed is None:
        return None
    try:
        labels = as_labels(listed)
    except DataError:  # boxes, names or another list that happens to have this name
        return None
    return labels if labels.ndim == 1 else None


def _class_names(dataset: Any) -> tuple[str, ...] | None:
    """The class names that a Dataset keeps, or those of the Dataset it is a part of."""
    names = getattr(dataset, "classes", None)
    if names is None and hasattr(dataset, "dataset"):
        return _class_names(dataset.dataset)
    return tuple(str(name) for name in names) if isinstance(names, (list, tuple)) and names else None
