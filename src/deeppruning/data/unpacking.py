"""Read files from folders and archives, within limits that are checked before memory or time is spent.

>>> check_unpacked("photos.npz", packed=1_000, unpacked=50_000)
>>> check_unpacked("bomb.gz", packed=10_000_000, unpacked=10_000_000_000)
Traceback (most recent call last):
    ...
deeppruning.errors.DataError: bomb.gz would unpack from 10 MB to 10000 MB, 1000 times its size; no data \
set needs that, nothing was unpacked
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias, cast

from deeppruning.errors import DAMAGE, DataError

Read: TypeAlias = Callable[[str], bytes]

LARGEST = 16 << 30  # bytes in memory; a larger data set is nearly always a mistake
UNSUSPICIOUS = 1 << 28  # bytes that any file may unpack to; blank images can be compressed a thousandfold
MOST_TIMES = 100  # the ratio allowed for larger files: images are rarely compressed to a tenth
LARGEST_FILE = 1 << 30  # bytes of a file, or of all in an archive; five times the largest expected


def check_unpacked(name: Path | str, *, packed: int, unpacked: int) -> None:
    """Refuse a file that unpacks to more than any data set, or at a ratio only a malicious file has."""
    if unpacked > LARGEST:
        raise DataError(
            f"{name} claims to hold {unpacked / 2**30:.0f} GiB; at most {LARGEST >> 30} GiB are read"
        )
    if unpacked > UNSUSPICIOUS and unpacked > MOST_TIMES * packed:
        raise DataError(
            f"{name} would unpack from {packed / 1e6:.0f} MB to {unpacked / 1e6:.0f} MB, "
            f"{unpacked // max(1, packed)} times its size; no data set needs that, nothing was unpacked"
        )


# The errors of both readers name the file inside; the caller adds the folder or archive.


def folder_reader(folder: Path) -> Read:
    """A function that reads a file of the folder; raises DataError if it is missing or unreadable."""

    def read(name: str) -> bytes:
        try:
            if (folder / name).stat().st_size > LARGEST_FILE:
                raise DataError(f"{name} is far too large; get it again")
            return (folder / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"{name} cannot be read: {error.strerror}; the data set is not complete, get it again"
            ) from error

    return read


class _Bounded(io.BufferedIOBase):
    """A stream that raises an error once it unpacks to more than any archive of data holds."""

    def __init__(self, archive: Path, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._read = 0
        self._archive = archive

    def read(self, size: int | None = -1, /) -> bytes:
        """This many bytes, or fewer at the end."""
        assert size is not None and size >= 0  # tarfile reads blocks
        self._read += size
        check_unpacked(self._archive, packed=self._archive.stat().st_size, unpacked=self._read)
        if self._read > LARGEST_FILE:
            raise DataError(f"the archive unpacks to more than {LARGEST_FILE >> 30} GiB; get it again")
        return self._stream.read(size)


def archive_reader(archive: Path, inner: str, names: tuple[str, ...]) -> Read:
    """A function that returns members `inner`/name of a .tar.gz; nothing is unpacked to disk.

    Only members with these names are read, so no path in the archive can lead anywhere else.
    """
    expected = {f"{inner}/{name}": name for name in names}
    contents: dict[str, bytes] = {}
    try:
        with (
            gzip.open(archive) as packed,
            tarfile.open(fileobj=cast(IO[bytes], _Bounded(archive, packed)), mode="r|") as members,
        ):
            for member in members:
                if member.name in expected and member.isfile():
                    if member.size > LARGEST_FILE:
                        raise DataError(f"{member.name} is far too large ({member.size} bytes)")
                    stream = members.extractfile(member)
                    assert stream is not None
                    contents[expected[member.name]] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error, *DAMAGE) as error:
        raise DataError(
            f"not a complete archive ({archive.stat().st_size} bytes): {error}; it may be cut short; "
            "delete it and get it again"
        ) from error

    def read(name: str) -> bytes:
        if name not in contents:
            raise DataError(f"the archive does not hold {inner}/{name}; delete it and get it again")
        return contents[name]

    return read
