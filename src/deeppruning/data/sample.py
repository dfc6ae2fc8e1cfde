"""A small sample with every class equally present, the same for the same seed.

>>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
>>> balanced_sample(data, 4, seed=0).labels.bincount().tolist()
[2, 2]
"""

import torch

from deeppruning.data.images import ImageSet
from deeppruning.data.stream import Images
from deeppruning.errors import InputError

SHARE_ASIDE = 0.1  # of the training images, kept from training to judge by
MOST_ASIDE = 1000  # more of them would only make training poorer
FEWEST_ASIDE = 20  # fewer of them tell nothing


def balanced_sample(data: Images, size: int, seed: int) -> ImageSet:
    """`size` images without repetition, the same number for each class.

    Where the classes do not divide `size`, some classes give one image more; the seed decides which.
    Images come in the order in which they stand in `data`; of a stream only these are read.
    """
    return data.subset(balanced_indices(data, size, seed)).in_memory()


def balanced_indices(data: Images, size: int, seed: int) -> torch.Tensor:
    """Where the images of `balanced_sample` stand in `data`, in order."""
    if size < 1:
        raise InputError(f"a sample must hold at least 1 image, got {size}")
    generator = torch.Generator().manual_seed(seed)
    wanted, available = _wanted(data, size, generator), _available(data)
    for index in (wanted > available).nonzero().flatten().tolist():
        most = most_balanced(data)
        raise InputError(
            f"a balanced sample of {size} needs {int(wanted[index])} images of class "
            f"{data.classes[index]!r}, which has {int(available[index])}; "
            + (f"ask for at most {most}" if most else "give every class at least one image")
        )
    chosen = []
    for index in range(data.num_classes):
        members = (data.labels == index).nonzero().flatten()
        picks = torch.randperm(len(members), generator=generator)[: int(wanted[index])]
        chosen.append(members[picks])
    return torch.cat(chosen).sort().values


def has_balanced(data: Images, size: int, seed: int) -> bool:
    """Whether `balanced_sample` finds enough images of every class."""
    wanted = _wanted(data, size, torch.Generator().manual_seed(seed))
    return bool((wanted <= _available(data)).all())


def most_balanced(data: Images) -> int:
    """How many images there are when every class gives as many as the smallest has.

    >>> most_balanced(ImageSet(torch.zeros(5, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1]), ("a", "b")))
    4
    """
    return int(_available(data).min()) * data.num_classes


def smallest_class(data: Images) -> str:
    """The name of the class with the fewest images."""
    return data.classes[int(_available(data).argmin())]


def _wanted(data: Images, size: int, generator: torch.Generator) -> torch.Tensor:
    """How many images each class gives to a balanced sample; the generator says which give one more."""
    base, extra = divmod(size, data.num_classes)
    wanted = torch.full((data.num_classes,), base)
    wanted[torch.randperm(data.num_classes, generator=generator)[:extra]] += 1
    return wanted


def _available(data: Images) -> torch.Tensor:
    return torch.bincount(data.labels, minlength=data.num_classes)


def hold_out(data: Images, share: float, seed: int) -> tuple[Images, Images]:
    """What stays, and a share of every class that is set aside, at least one image of each; by chance.

    >>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
    >>> [part.labels.tolist() for part in hold_out(data, 0.1, seed=0)]
    [[0, 0, 1, 1], [0, 1]]
    """
    generator = torch.Generator().manual_seed(seed)
    aside = torch.zeros(len(data), dtype=torch.bool)
    for index in range(data.num_classes):
        members = (data.labels == index).nonzero().flatten()
        if len(members) < 2:
            raise InputError(
                f"an error limit is checked on images that are set aside, at least one of each class; class "
                f"{data.classes[index]!r} has {len(members)}: give every class at least two"
            )
        count = max(1, round(share * len(members)))
        aside[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return data.subset((~aside).nonzero().flatten()), data.subset(aside.nonzero().flatten())


def indices_aside(data: Images, sampled: torch.Tensor, seed: int) -> torch.Tensor:
    """Images to keep from training, a tenth of every class but not many more than a thousand; by chance.

    Those outside of the sample at the indices `sampled` come first. None where they would be too few to tell
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
    for index in range(data.num_classes):
        members = (data.labels == index).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        members = members[in_sample[members].to(torch.int8).argsort(stable=True)]
        count = max(round(share * len(members)), int(SHARE_ASIDE * len(members) >= 1))
        chosen.append(members[:count])
    found = torch.cat(chosen).sort().values
    return found if len(found) >= FEWEST_ASIDE else found[:0]


def split_balanced(data: ImageSet, first: int) -> tuple[ImageSet, ImageSet]:
    """Two parts without an image in common, the first of `first` images, with the classes spread over both.

    >>> data = ImageSet(torch.zeros(6, 1, 2, 2), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"))
    >>> [part.labels.tolist() for part in split_balanced(data, 2)]
    [[0, 1], [0, 0, 1, 1]]
    """
    ranks = torch.zeros(len(data), dtype=torch.int64)
    for index in range(data.num_classes):
        members = (data.labels == index).nonzero().flatten()
        ranks[members] = torch.arange(len(members))
    order = ranks.argsort(stable=True)
    return data.subset(order[:first].sort().values), data.subset(order[first:].sort().values)
