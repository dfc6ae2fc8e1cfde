"""What a test set can tell: how far off an error measured on so many images may be.

>>> low, high = wilson(4, 360)
>>> f"{low:.4f} {high:.4f}"
'0.0043 0.0282'
>>> are_alike(2, 4), are_alike(661, 1019)
(True, False)
"""

import math

Z95 = 1.959964
# A difference that chance exceeds at least this often is none to choose by. One standard error, not the
# usual two: here "no difference" is what is acted on, and a small test set must not prove too much.
ALIKE = 0.32


def wilson(wrong: int, images: int) -> tuple[float, float]:
    """The interval that holds the true error in 95 of 100 such tests (Wilson's)."""
    share, squared = wrong / images, Z95**2
    middle = (share + squared / (2 * images)) / (1 + squared / images)
    half = Z95 * math.sqrt(share * (1 - share) / images + squared / (4 * images**2)) / (1 + squared / images)
    return max(0.0, middle - half), min(1.0, middle + half)


def are_alike(one: int, other: int) -> bool:
    """Whether two counts of wrong answers on the same images differ by no more than chance makes them."""
    return chance_of(one, other) >= ALIKE


def chance_of(one: int, other: int) -> float:
    """How often two equally good networks differ at least so much: each error falls on either alike.

    Exact for few errors, where a normal curve would be far off.

    >>> chance_of(0, 2), chance_of(5, 5)
    (0.5, 1.0)
    """
    total, fewer = one + other, min(one, other)
    if total > 200:  # the sum is long, and the curve is right
        return math.erfc(max(0.0, abs(one - other) - 1) / math.sqrt(2 * total))
    tail = sum(math.comb(total, wrong) for wrong in range(fewer + 1))
    return min(1.0, tail / 2.0 ** (total - 1))
