"""Read files by name out of a folder or an archive; from an archive only the names expected.

Errors name the file within; whoever asked knows the folder or archive and puts it in front.
"""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from deeppruning.errors import DataError

Read: TypeAlias = Callable[[str], bytes]

LARGEST = 1 << 30  # bytes of one member; six times the largest file expected


def folder_reader(folder: Path) -> Read:
    """Reads a file of the folder; one that is missing or unreadable is a DataError."""

    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes()
        except OSError as error:
            raise DataError(
                f"{name} cannot be read: {error.strerror}; the data set is not complete, get it again"
            ) from error

    return read


def archive_reader(archive: Path, inner: str, names: tuple[str, ...]) -> Read:
    """Reads members `inner`/name of a .tar.gz into memory; nothing is unpacked to disk.

    Members of other names are passed over, so that no path in the archive can lead anywhere.
    """
    wanted = {f"{inner}/{name}": name for name in names}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                if member.name in wanted and member.isfile():
                    if member.size > LARGEST:
                        raise DataError(f"{member.name} is far too large ({member.size} bytes)")
                    stream = members.extractfile(member)
                    assert stream is not None
                    found[wanted[member.name]] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"not a whole archive ({archive.stat().st_size} bytes): {error}; it may be cut short; "
            "delete it and get it again"
        ) from error

    def read(name: str) -> bytes:
        if name not in found:
            raise DataError(f"the archive does not hold {inner}/{name}; delete it and get it again")
        return found[name]

    return read
