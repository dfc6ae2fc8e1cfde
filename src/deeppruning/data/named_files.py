"""Read files by name out of a folder or an archive; from an archive only the names expected.

Errors name the file within; whoever asked knows the folder or archive and puts it in front.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeAlias, cast

from deeppruning.data.bounds import check_unpacked
from deeppruning.errors import DAMAGE, DataError

Read: TypeAlias = Callable[[str], bytes]

LARGEST = 1 << 30  # bytes of a file, or of all in an archive; five times the largest expected


def folder_reader(folder: Path) -> Read:
    """Reads a file of the folder; one that is missing or unreadable is a DataError."""

    def read(name: str) -> bytes:
        try:
            if (folder / name).stat().st_size > LARGEST:
                raise DataError(f"{name} is far too large; get it again")
            return (folder / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"{name} cannot be read: {error.strerror}; the data set is not complete, get it again"
            ) from error

    return read


class _Bounded(io.BufferedIOBase):
    """A stream that ends in an error where it unpacks to more than any archive of data has."""

    def __init__(self, archive: Path, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._read = 0
        self._archive = archive

    def read(self, size: int | None = -1, /) -> bytes:
        """As many bytes, or fewer at the end."""
        assert size is not None and size >= 0  # tarfile reads blocks
        self._read += size
        check_unpacked(self._archive, packed=self._archive.stat().st_size, unpacked=self._read)
        if self._read > LARGEST:
            raise DataError(f"the archive unpacks to more than {LARGEST >> 30} GiB; get it again")
        return self._stream.read(size)


def archive_reader(archive: Path, inner: str, names: tuple[str, ...]) -> Read:
    """Reads members `inner`/name of a .tar.gz into memory; nothing is unpacked to disk.

    Members of other names are passed over, so that no path in the archive can lead anywhere.
    """
    wanted = {f"{inner}/{name}": name for name in names}
    found: dict[str, bytes] = {}
    try:
        with (
            gzip.open(archive) as packed,
            tarfile.open(fileobj=cast(IO[bytes], _Bounded(archive, packed)), mode="r|") as members,
        ):
            for member in members:
                if member.name in wanted and member.isfile():
                    if member.size > LARGEST:
                        raise DataError(f"{member.name} is far too large ({member.size} bytes)")
                    stream = members.extractfile(member)
                    assert stream is not None
                    found[wanted[member.name]] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error, *DAMAGE) as error:
        raise DataError(
            f"not a whole archive ({archive.stat().st_size} bytes): {error}; it may be cut short; "
            "delete it and get it again"
        ) from error

    def read(name: str) -> bytes:
        if name not in found:
            raise DataError(f"the archive does not hold {inner}/{name}; delete it and get it again")
        return found[name]

    return read
