"""A user's Dataset or DataLoader as a source of images: its own code is called when an image is needed."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
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

from deeppruning.data.convert import (
    as_image_set,
    as_labels,
    class_names,
    is_array,
    numbered,
    one_image,
    one_label,
)
from deeppruning.data.images import ImageSet
from deeppruning.data.source import ImageSource, Pass, Read, read_ahead
from deeppruning.data.stream import Images, ImageStream
from deeppruning.errors import DataError, DeepPruningError, describe_raised

_TRIED = 16  # items whose own label is compared with the list that the Dataset keeps
_AT_ONCE = 64  # items that are read together where only labels are wanted


@dataclass(frozen=True, eq=False)
class DatasetItems(ImageSource):
    """The items (image, label) of a Dataset; whatever it draws at random follows from the key."""

    dataset: Any
    collate: Any = None  # what a DataLoader of the user's own makes a batch of items with
    size: tuple[int, int] | None = None  # height and width that images are brought to
    draws = True

    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """Call the Dataset; whatever goes wrong in there is told with the item's number."""
        random.seed(key)
        np.random.seed(key % 2**32)
        torch.default_generator.manual_seed(key)  # of the processor alone: a GPU's is for layers
        image, label = self._item(index)
        tensor = one_image(image, index)
        if self.size is not None and tuple(tensor.shape[1:]) != self.size:
            tensor = interpolate(tensor[None], size=self.size, mode="bilinear", antialias=True)[0]
        return tensor, one_label(label, index)

    def identity(self) -> str:
        """By what is known without reading: the kind and the number of items."""
        described = f"{type(self.dataset).__name__} {len(self.dataset)} {self.size}"
        return hashlib.sha256(described.encode()).hexdigest()

    def _item(self, index: int) -> tuple[Any, Any]:
        try:
            item = self.dataset[index]
            if self.collate is not None:
                images, labels = self.collate([item])
                return images[0], labels[0]
        except DeepPruningError:
            raise
        except Exception as error:
            # The user's own code may raise anything; say which item it was and keep the cause.
            raise DataError(
                f"item {index} of the Dataset cannot be read: {describe_raised(error)}"
            ) from error
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(
                f"item {index} of the Dataset must be a pair (image, label), got {type(item).__name__}"
            )
        return item[0], item[1]


def as_images_or_stream(obj: Any) -> Images:
    """Images as they are if they are in memory, as arrays or tensors; read as needed from a Dataset.

    A DataLoader tells its Dataset, its `num_workers` and its `collate_fn`; batches and their order are those
    of the training.
    """
    if isinstance(obj, ImageStream):
        return obj
    dataset, readers, collate = _parts(obj)
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2 and collate is None:
        return as_image_set(dataset.tensors)
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"{type(dataset).__name__} gives its items in its own order only, and a search draws a sample "
            "by class: give a Dataset with a length and items by number (__len__, __getitem__)"
        )
    is_pair = isinstance(dataset, (tuple, list)) and len(dataset) == 2 and is_array(dataset[0])
    has_items = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if isinstance(dataset, ImageSet) or is_array(dataset) or is_pair or not has_items:
        return as_image_set(dataset)
    return _stream(DatasetItems(dataset, collate), readers)


def resized(stream: ImageStream, height: int, width: int) -> ImageStream:
    """The same stream with every image at this size."""
    if stream.image_shape[1:] == (height, width):
        return stream
    if not isinstance(stream.source, DatasetItems):
        raise DataError("pictures of a folder are brought to a size when the folder is loaded: image_size")
    source = replace(stream.source, size=(height, width))
    return replace(stream, source=source, image_shape=(stream.image_shape[0], height, width))


def _parts(obj: Any) -> tuple[Any, int, Any]:
    """The Dataset, how many processes read it, and what makes batches of items where that is not torch."""
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
                f"the DataLoader chooses items by {way}, but training here goes through all of them: "
                "give the Dataset, or torch.utils.data.Subset(dataset, indices)"
            )
    collate = None if obj.collate_fn is default_collate else obj.collate_fn
    return obj.dataset, obj.num_workers, collate


def _stream(source: DatasetItems, readers: int) -> ImageStream:
    count = len(source.dataset)
    if count == 0:
        raise DataError("the Dataset has no items; give at least one image")
    image = next(_read(source, [[0]], 0))[0][0]
    labels = _labels(source, readers)
    classes = class_names(source.dataset) or numbered(labels)
    channels, height, width = image.shape
    return ImageStream(
        source=source,
        indices=torch.arange(count),
        labels=labels,
        classes=classes,
        image_shape=(channels, height, width),
        dtype=image.dtype,
        readers=readers,
    )


def _labels(source: DatasetItems, readers: int) -> Tensor:
    """From the list that the Dataset keeps, where its items agree with it; else by reading all of them."""
    count = len(source.dataset)
    known = _listed_labels(source.dataset)
    if known is not None and len(known) == count:
        tried = range(0, count, -(-count // _TRIED))
        read = [label for _, some in _read(source, [[index] for index in tried], 0) for label in some]
        if read == known[list(tried)].tolist():
            return known
    batches = [list(range(start, min(start + _AT_ONCE, count))) for start in range(0, count, _AT_ONCE)]
    return as_labels([label for _, some in _read(source, batches, readers) for label in some])


def _read(source: DatasetItems, batches: list[list[int]], readers: int) -> Iterator[Read]:
    return read_ahead(source, batches, readers, Pass())


def _listed_labels(dataset: Any) -> Tensor | None:
    """The labels of all items without reading one, where the Dataset keeps a list of them."""
    if isinstance(dataset, Subset):
        whole = _listed_labels(dataset.dataset)
        return None if whole is None else whole[list(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [_listed_labels(part) for part in dataset.datasets]
        found = [part for part in parts if part is not None]
        return torch.cat(found) if len(found) == len(parts) else None
    if isinstance(dataset, TensorDataset):
        listed: Any = dataset.tensors[-1]
    else:
        listed = getattr(dataset, "targets", None)
        listed = getattr(dataset, "labels", None) if listed is None else listed
    if listed is None:
        return None
    try:
        labels = as_labels(listed)
    except DataError:  # boxes, names or another list that happens to be called so
        return None
    return labels if labels.ndim == 1 else None
