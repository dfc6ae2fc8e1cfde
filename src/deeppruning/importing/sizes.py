"""Sizes that a file has written down, computed from the tensors in place of that.

A file says "reshape to 1 x 2048" where its author wrote `flatten(1)`: after a cut there are fewer. What a
written size stands for is read off the tensor that arrives while the network is built. The comparison with
onnxruntime and the proof of every cut catch a wrong guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Part:
    """One size of a result: the product of sizes of the input from `first` up to `end`, by a divisor.

    Where there is no range it is the divisor itself, a number that stays.
    """

    first: int
    end: int
    divisor: int = 1

    def of(self, shape: Sequence[int]) -> Any:
        """The product of some sizes of a tensor, divided; or the number itself."""
        if self.first == self.end:
            return self.divisor
        return math.prod(shape[self.first : self.end]) // self.divisor


def reshape_parts(shape: Sequence[int], target: Sequence[int]) -> list[Part] | None:
    """How each size of a reshaped tensor follows from those of its input; None if that cannot be told.

    >>> reshape_parts((1, 512, 7, 7), (1, 25088))
    [Part(first=0, end=1, divisor=1), Part(first=1, end=4, divisor=1)]
    >>> reshape_parts((1, 116, 28, 28), (1, 2, 58, 28, 28))[1:3]
    [Part(first=0, end=0, divisor=2), Part(first=1, end=2, divisor=2)]
    """
    parts: list[Part] = []
    here = there = 0
    while there < len(target):
        if here == len(shape):
            if target[there] != 1:
                return None
            parts.append(Part(0, 0))
            there += 1
            continue
        first, start = here, there
        have, want = shape[here], target[there]
        here, there = here + 1, there + 1
        while have != want:
            if have < want and here < len(shape):
                have, here = have * shape[here], here + 1
            elif have > want and there < len(target):
                want, there = want * target[there], there + 1
            else:
                return None
        parts += _of_block(first, here, target[start:there])
    return parts if all(size == 1 for size in shape[here:]) else None


def _of_block(first: int, end: int, sizes: Sequence[int]) -> list[Part]:
    """The sizes that a block of the input's is split into: the largest follows, the others stay."""
    largest = max(range(len(sizes)), key=lambda place: sizes[place])
    others = math.prod(size for place, size in enumerate(sizes) if place != largest)
    return [
        Part(first, end, others) if place == largest else Part(0, 0, size) for place, size in enumerate(sizes)
    ]


def even_pieces(sizes: Sequence[int]) -> int | None:
    """The number of pieces of one size; None where they differ."""
    return len(sizes) if len(sizes) > 1 and len(set(sizes)) == 1 else None


def slice_as_pieces(value: Tensor, axis: int, start: int, end: int) -> tuple[int, int, int] | None:
    """A slice as pieces (first, end, of how many) of equal size, where its ends are such; None if not."""
    size = value.shape[axis]
    start, end = (max(0, place + size) if place < 0 else min(place, size) for place in (start, end))
    width = math.gcd(math.gcd(start, end), size)
    if width in (0, size) or size // width > 8 or start >= end:
        return None
    return start // width, end // width, size // width
