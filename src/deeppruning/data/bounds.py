"""Bounds on what a data file may unpack to, checked before memory or minutes are spent on it.

>>> check_unpacked("photos.npz", packed=1_000, unpacked=50_000)
>>> check_unpacked("bomb.gz", packed=10_000_000, unpacked=10_000_000_000)
Traceback (most recent call last):
    ...
deeppruning.errors.DataError: bomb.gz would unpack from 10 MB to 10000 MB, 1000 times its size; no data \
set needs that, nothing was unpacked
"""

from pathlib import Path

from deeppruning.errors import DataError

LARGEST = 16 << 30  # bytes in memory; more than that is nearly always a mistake
UNSUSPICIOUS = 1 << 28  # bytes that any file may unpack to; blank images do shrink a thousandfold
MOST_TIMES = 100  # what larger files may grow by: images rarely shrink to a tenth


def check_unpacked(name: Path | str, *, packed: int, unpacked: int) -> None:
    """Refuse what is larger than any data set, or grows as only a file made for that does."""
    if unpacked > LARGEST:
        raise DataError(
            f"{name} claims to hold {unpacked / 2**30:.0f} GiB; at most {LARGEST >> 30} GiB are read"
        )
    if unpacked > UNSUSPICIOUS and unpacked > MOST_TIMES * packed:
        raise DataError(
            f"{name} would unpack from {packed / 1e6:.0f} MB to {unpacked / 1e6:.0f} MB, "
            f"{unpacked // max(1, packed)} times its size; no data set needs that, nothing was unpacked"
        )
