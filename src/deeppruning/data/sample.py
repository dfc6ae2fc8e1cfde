"""Samples and parts of a data set with balanced classes, the same for the same seed.

>>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
>>> balanced_sample(data, 4, seed=0).labels.bincount().tolist()
[2, 2]
"""

import torch

from deeppruning.data.images import ImageSet
from deeppruning.data.stream import Images
from deeppruning.errors import InputError

SHARE_ASIDE = 0.1  # of the training images, held out for evaluation
MOST_ASIDE = 1000  # holding out more would only make training worse
FEWEST_ASIDE = 20  # fewer cannot tell two networks apart


def balanced_sample(data: Images, size: int, seed: int) -> ImageSet:
    """`size` images without repetition, the same number for each class.

    If `size` is not divisible by the number of classes, some classes, chosen by the seed, give one image
    more. Images are in the order of `data`; of a stream only these are read.
    """
    return data.subset(balanced_indices(data, size, seed)).in_memory()


def balanced_indices(data: Images, size: int, seed: int) -> torch.Tensor:
    """The indices in `data` of the images of `balanced_sample`, in order."""
    if size < 1:
        raise InputError(f"a sample must hold at least 1 image, got {size}")
    generator = torch.Generator().manual_seed(seed)
    wanted, available = _class_sizes(data, size, generator), _images_per_class(data)
    for index in (wanted > available).nonzero().flatten().tolist():
        most = most_balanced(data)
        raise InputError(
            f"a balanced sample of {size} needs {int(wanted[index])} images of class "
            f"{data.classes[index]!r}, which has {int(available[index])}; "
            + (f"ask for at most {most}" if most else "give every class at least one image")
        )
    chosen = [
        members[torch.randperm(len(members), generator=generator)[: int(count)]]
        for members, count in zip(members_of_classes(data), wanted, strict=True)
    ]
    return torch.cat(chosen).sort().values


def has_balanced(data: Images, size: int, seed: int) -> bool:
    """Whether there are enough images of every class for `balanced_sample`."""
    wanted = _class_sizes(data, size, torch.Generator().manual_seed(seed))
    return bool((wanted <= _images_per_class(data)).all())


def most_balanced(data: Images) -> int:
    """The size of the largest sample with the same number of images of every class.

    >>> most_balanced(ImageSet(torch.zeros(5, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1]), ("a", "b")))
    4
    """
    return int(_images_per_class(data).min()) * data.num_classes


def smallest_class(data: Images) -> str:
    """The name of the class with the fewest images."""
    return data.classes[int(_images_per_class(data).argmin())]


def _class_sizes(data: Images, size: int, generator: torch.Generator) -> torch.Tensor:
    """The images of each class in a balanced sample; the generator chooses the classes that give one more."""
    base, extra = divmod(size, data.num_classes)
    wanted = torch.full((data.num_classes,), base)
    wanted[torch.randperm(data.num_classes, generator=generator)[:extra]] += 1
    return wanted


def members_of_classes(data: Images) -> list[torch.Tensor]:
    """The indices of the images of each class, in order."""
    return [(data.labels == index).nonzero().flatten() for index in range(data.num_classes)]


def _images_per_class(data: Images) -> torch.Tensor:
    return torch.bincount(data.labels, minlength=data.num_classes)


def hold_out(data: Images, share: float, seed: int) -> tuple[Images, Images]:
    """Split off a random share of every class, at least one image of each: the rest, and that share.

    >>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
    >>> [part.labels.tolist() for part in hold_out(data, 0.1, seed=0)]
    [[0, 0, 1, 1], [0, 1]]
    """
    generator = torch.Generator().manual_seed(seed)
    aside = torch.zeros(len(data), dtype=torch.bool)
    for name, members in zip(data.classes, members_of_classes(data), strict=True):
        if len(members) < 2:
            raise InputError(
                f"an error limit is checked on held-out images, at least one of each class, but class "
                f"{name!r} has {len(members)}; give every class at least two"
            )
        count = max(1, round(share * len(members)))
        aside[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return data.subset((~aside).nonzero().flatten()), data.subset(aside.nonzero().flatten())


def indices_aside(data: Images, sampled: torch.Tensor, seed: int) -> torch.Tensor:
    """Random images to hold out from training: a tenth of every class, about a thousand at most.

    Images outside the sample at the indices `sampled` are preferred. Empty if there would be too few to tell
    two networks apart.

    >>> data = ImageSet(torch.zeros(400, 1, 2, 2), torch.arange(400) % 2, ("a", "b"))
    >>> chosen = indices_aside(data, torch.arange(300), seed=0)
    >>> len(chosen), int(chosen.min()) >= 300, data.labels[chosen].bincount().tolist()
    (40, True, [20, 20])
    """
    generator = torch.Generator().manual_seed(seed)
    share = min(SHARE_ASIDE, MOST_ASIDE / len(data))
    in_sample = torch.zeros(len(data), dtype=torch.bool)
    in_sample[sampled] = True
    chosen = [torch.zeros(0, dtype=torch.int64)]
    for members in members_of_classes(data):
        members = members[torch.randperm(len(members), generator=generator)]
        members = members[in_sample[members].to(torch.int8).argsort(stable=True)]
        count = max(round(share * len(members)), int(SHARE_ASIDE * len(members) >= 1))
        chosen.append(members[:count])
    indices = torch.cat(chosen).sort().values
    return indices if len(indices) >= FEWEST_ASIDE else indices[:0]


def split_balanced(data: ImageSet, first: int) -> tuple[ImageSet, ImageSet]:
    """Two disjoint parts, the first with `first` images, with the classes spread over both.

    >>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
    >>> [part.labels.tolist() for part in split_balanced(data, 2)]
    [[0, 1], [0, 0, 1, 1]]
    """
    ranks = torch.zeros(len(data), dtype=torch.int64)
    for members in members_of_classes(data):
        ranks[members] = torch.arange(len(members))
    order = ranks.argsort(stable=True)
    return data.subset(order[:first].sort().values), data.subset(order[first:].sort().values)
