"""Write files and folders safely: a file is replaced whole or not at all, and links are not followed.

>>> import tempfile
>>> target = Path(tempfile.mkdtemp()) / "note.txt"
>>> write_atomically(target, b"text")
>>> target.read_bytes()
b'text'
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from deeppruning.errors import RunError

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EFBIG: "the file would exceed the size limit of this process; raise it with `ulimit -f`",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose a folder you may write to",
}


def cache_folder() -> Path:
    """The folder for files that can be created again: in XDG_CACHE_HOME, by default ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deeppruning"


def plain_name(text: str) -> str:
    """A file name without special characters, made of names that may be paths.

    >>> plain_name("resnet20-data/flowers:load"), plain_name("resnet20-photos/-pruned")
    ('resnet20-data-flowers-load', 'resnet20-photos-pruned')
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.")


def replace_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file next to `path`, flush it to disk, then rename it to `path`.

    A reader sees the old file or the new one, never a part. If anything fails, the old file stays as it
    was and the temporary one is removed. Errors of the disk are raised as RunError, any other error of
    `write` as it is. Libraries that hide the errors of the disk should pass their bytes to
    `write_atomically` instead.
    """
    # Same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    handle = -1
    try:
        # Writers such as safetensors make private files; the user's umask decides here instead.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # tells a file in use from one that a killed process left behind
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)
        _flush_to_disk(temporary)
        temporary.replace(path)
        _flush_to_disk(path.parent)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}; check the folder and try again")
        unchanged = "; the previous file is untouched" if path.exists() else ""
        raise RunError(f"cannot write {path}: {reason}{unchanged}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
        if handle >= 0:
            os.close(handle)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the contents of `path` by `data`, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    replace_atomically(path, write)


def _flush_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# A run folder may come from someone else, so no link inside it may lead out of it. A rename replaces a
# link instead of following it; what remains are the folders on the way, and files written in place.


def folder_within(root: Path, folder: Path) -> Path:
    """Create a folder below `root` with its parents; a link between the two is refused.

    `root` itself is named by the user and may be a link.
    """
    path = root
    for part in folder.relative_to(root).parts:
        path = path / part
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            refuse_linked_folder(path)
            raise RunError(f"{path} cannot be created ({error.strerror}); check the folder") from error
        refuse_linked_folder(path)
    return path


def refuse_linked_folder(path: Path) -> None:
    """Raise unless this is a folder, or nothing yet."""
    entry = _directory_entry(path)
    if entry is not None and not stat.S_ISDIR(entry.st_mode):
        kind = "a link" if stat.S_ISLNK(entry.st_mode) else "not a folder"
        raise RunError(f"{path} is {kind}, so nothing is written there; remove it and try again")


def refuse_linked_file(path: Path) -> None:
    """Raise unless this is a plain file with no other name, or nothing yet."""
    entry = _directory_entry(path)
    if entry is not None:
        refuse_foreign_file(path, entry)


def refuse_foreign_file(path: Path, entry: os.stat_result) -> None:
    """Raise if a path leads to anything but a plain file, or to a file that has another name as well."""
    if stat.S_ISLNK(entry.st_mode):
        kind = "a link"
    elif not stat.S_ISREG(entry.st_mode):
        kind = "not a file"
    elif entry.st_nlink > 1:
        kind = "a file that has a second name elsewhere (a hard link)"
    else:
        return
    raise RunError(f"{path} is {kind}, so it is not written to; replace it by a copy, or remove it")


def _directory_entry(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def without_folders(value: Any) -> Any:
    """Options as they are shown to others, on a page or by a tracker: files and folders by their own names.

    >>> without_folders(["/home/me/nets.py:tiny", "resnet20", 3])
    ['nets.py:tiny', 'resnet20', 3]
    """
    if isinstance(value, Mapping):
        return {key: without_folders(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_folders(entry) for entry in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return kind(value).name or value
    return value
