"""Very many paths of files in a few bytes each: a million of them as objects would take half a gigabyte.

>>> names = FileNames.of(Path("photos"), ["cat/1.png", "dog/1.png"])
>>> len(names), names[1].as_posix()
(2, 'photos/dog/1.png')
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class FileNames:
    """Files below a folder by number; the names lie in one row of bytes."""

    folder: Path
    text: bytes
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> "FileNames":
        """These files of a folder, in this order; names are relative to it."""
        text, ends = bytearray(), []
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        return cls(folder, bytes(text), np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Path:
        start = int(self.ends[index - 1]) if index else 0
        return self.folder / os.fsdecode(self.text[start : int(self.ends[index])])

    def __iter__(self) -> Iterator[Path]:
        return (self[index] for index in range(len(self)))
