"""Turn what users hold, arrays, tensors or a torch Dataset, into an ImageSet.

>>> as_image_set((np.zeros((2, 8, 8, 3), np.uint8), [0, 1])).image_shape
(3, 8, 8)
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from deeppruning.data.images import ImageSet, Normalization
from deeppruning.errors import DataError

CHANNELS = (1, 3, 4)  # sizes that tell a channel dimension from height and width
MOST_CLASSES = 100_000  # beyond this, labels are not indices but numbers of another kind


def as_image_set(
    obj: Any, *, classes: tuple[str, ...] | None = None, normalization: Normalization | None = None
) -> ImageSet:
    """An ImageSet as it is, or one made of a pair (images, labels) or a Dataset of (image, label).

    Images of shape (N, C, H, W), (N, H, W, C) with 1, 3 or 4 channels, or (N, H, W); whole numbers in
    0..255 become uint8, floats are taken as normalised already. Classes not named are numbered. With
    `normalization` left at None, that of an ImageSet stays and others are only scaled to 0..1.
    """
    if isinstance(obj, ImageSet):
        named = obj if classes is None else replace(obj, classes=classes)
        return named if normalization is None else replace(named, normalization=normalization)
    if isinstance(obj, (tuple, list)) and len(obj) == 2 and is_array(obj[0]):
        images, labels = obj
    elif hasattr(obj, "__getitem__") and hasattr(obj, "__len__") and not is_array(obj):
        images, labels = _stack(obj)
        classes = classes or class_names(obj)
    else:
        raise DataError(
            f"cannot take images from {type(obj).__name__}; give an ImageSet, a pair (images, labels) of "
            "arrays or tensors, or a torch Dataset of (image, label) with a length"
        )
    indices = as_labels(labels)
    if classes is None:
        classes = numbered(indices)
    return ImageSet(as_images(images), indices, classes, normalization)


def as_images(images: Any) -> Tensor:
    """An array or tensor of images as (N, C, H, W), uint8 or float."""
    tensor = _as_tensor(images, "images")
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


def is_array(obj: Any) -> bool:
    """Whether it holds numbers in a grid: of numpy or torch."""
    return isinstance(obj, (np.ndarray, Tensor))


def _as_tensor(values: Any, what: str) -> Tensor:
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
    """Class indices as int64; anything else is refused."""
    tensor = _as_tensor(labels, "labels")
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


def _stack(dataset: Any) -> tuple[Tensor, list[int]]:
    images: list[Tensor] = []
    labels: list[int] = []
    for index in range(len(dataset)):
        try:
            image, label = dataset[index]
        except (TypeError, ValueError) as error:
            raise DataError(f"item {index} of the Dataset must be a pair (image, label): {error}") from error
        tensor = one_image(image, index)
        if images and (tensor.shape, tensor.dtype) != (images[0].shape, images[0].dtype):
            raise DataError(
                f"item {index} of the Dataset is an image of shape {tuple(tensor.shape)}, {tensor.dtype}, "
                f"but item 0 has {tuple(images[0].shape)}, {images[0].dtype}; "
                "bring all to one shape and type first"
            )
        images.append(tensor)
        labels.append(one_label(label, index))
    if not images:
        raise DataError("the Dataset has no items; give at least one image")
    return torch.stack(images), labels


def one_image(image: Any, index: int) -> Tensor:
    """One item's image as (C, H, W), uint8 or float32."""
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    if not is_array(image) or image.ndim not in (2, 3):
        raise DataError(
            f"item {index} of the Dataset must have an image of shape (C, H, W), (H, W, C) or (H, W), "
            f"got {tuple(image.shape) if is_array(image) else type(image).__name__}"
        )
    # (H, W) becomes (1, H, W) and then a batch of one, so that one rule serves single images and sets.
    return as_images(image[None] if image.ndim == 3 else image[None, None])[0]


def one_label(label: Any, index: int) -> int:
    """One item's label as a class index."""
    try:
        value = int(label)
    except (TypeError, ValueError) as error:
        raise DataError(f"item {index} of the Dataset must have a class index, got {label!r}") from error
    if value != label:
        raise DataError(f"item {index} of the Dataset must have a whole class index, got {label!r}")
    return value


def class_names(dataset: Any) -> tuple[str, ...] | None:
    """The names that a Dataset keeps, or those of the one that it is a part of."""
    names = getattr(dataset, "classes", None)
    if names is None and hasattr(dataset, "dataset"):
        return class_names(dataset.dataset)
    return tuple(str(name) for name in names) if isinstance(names, (list, tuple)) and names else None
