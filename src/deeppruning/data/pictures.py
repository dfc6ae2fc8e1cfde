"""Picture files as a source of images: each is decoded, resized and cropped when it is read.

Only PNG and JPEG files are opened, recognised by their contents. Pillow reads many more formats, and some of
them start other programs (an EPS file starts Ghostscript).
"""

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deeppruning.data.stream import ImageSource
from deeppruning.errors import DataError

FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 1 << 26  # of one picture; 200 MB in colour
# What Pillow raises for damaged files: the last two for chunks and tags that are cut short or contradictory.
PROBLEMS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, LookupError, TypeError)
_GRAY = ("1", "L", "LA", "I", "I;16")
_WHOLE = 1e-6  # a crop that leaves out less than this share of a pixel is the whole picture


def open_picture(file: Path | IO[bytes]) -> Image.Image:
    """Open a picture and read its header; raises one of `PROBLEMS` for any other file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is tighter
        picture = Image.open(file, formats=FORMATS)
    if picture.width * picture.height > MOST_PIXELS:
        picture.close()
        raise ValueError(f"{picture.width}x{picture.height} pixels are more than the limit of {MOST_PIXELS}")
    return picture


def open_file(path: Path) -> Image.Image:
    """The same with a DataError that names the file."""
    try:
        return open_picture(path)
    except PROBLEMS as error:
        raise _unreadable_picture(path, error) from error


def is_gray(picture: Image.Image) -> bool:
    """Whether the format of a picture has no colours."""
    return picture.mode in _GRAY


@dataclass(frozen=True, eq=False)
class FileNames:
    """Paths of files in a folder, stored in one row of bytes: a million Path objects would take 500 MB.

    >>> names = FileNames.of(Path("photos"), ["cat/1.png", "dog/1.png"])
    >>> len(names), names[1].as_posix()
    (2, 'photos/dog/1.png')
    """

    folder: Path
    text: bytes
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> "FileNames":
        """These files, in this order; names are relative to the folder."""
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


@dataclass(frozen=True, eq=False)
class PictureFiles(ImageSource):
    """Picture files by index, as images of one mode and size (height, width).

    A picture is resized until it just covers `size`, then cropped to it at the centre. With `resize`, its
    shorter side becomes that many pixels first; with `shift`, the crop is then taken from anywhere.
    """

    names: FileNames
    lengths: NDArray[np.int64]  # of the files, in bytes
    mode: str
    size: tuple[int, int]
    resize: int | None = None

    @property
    def roomy(self) -> bool:  # type: ignore[override]
        """Whether pictures are larger than the images cropped from them."""
        return self.resize is not None and self.resize > min(self.size)

    @property
    def channels(self) -> int:
        """The channels of each image."""
        return 1 if self.mode == "L" else 3

    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """Decode one picture; errors name the file."""
        path, (height, width) = self.names[index], self.size
        with open_file(path) as picture:
            try:
                converted = _picture_in_eight_bits(picture).convert(self.mode)
            except PROBLEMS as error:
                raise _unreadable_picture(path, error) from error
        box = self._crop_box(converted, key if shift and self.roomy else None)
        if converted.size != (width, height) or box != (0, 0, width, height):
            converted = converted.resize((width, height), Image.Resampling.BILINEAR, box)
        array = np.array(converted).reshape(height, width, self.channels)
        return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))), None

    def identity(self) -> str:
        """By names and lengths of the files."""
        digest = hashlib.sha256(f"{self.mode} {self.size} {self.resize};".encode())
        digest.update(self.names.text)
        digest.update(self.names.ends.tobytes())
        digest.update(self.lengths.tobytes())
        return digest.hexdigest()

    def _crop_box(self, picture: Image.Image, key: int | None) -> tuple[float, float, float, float]:
        """The part of a picture that becomes the image: at the centre, or where the key says."""
        room = (self.resize or min(self.size)) / min(self.size)
        scale = room * max(self.size[0] / picture.height, self.size[1] / picture.width)
        across, down = (key >> 32, key & 0xFFFFFFFF) if key is not None else (1, 1)
        steps = 1 << 32 if key is not None else 2
        left, right = _crop_span(picture.width, self.size[1] / scale, (across % steps) / steps)
        top, bottom = _crop_span(picture.height, self.size[0] / scale, (down % steps) / steps)
        return left, top, right, bottom


def _crop_span(whole: int, part: float, place: float) -> tuple[float, float]:
    """Start and end of a part of a side.

    >>> _crop_span(10, 4.0, 0.5), _crop_span(10, 9.9999999, 0.5)
    ((3.0, 7.0), (0, 10))
    """
    if whole - part < _WHOLE:
        return 0, whole
    start = (whole - part) * place
    return start, start + part


def _picture_in_eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode not in ("I", "I;16"):
        return picture
    # Pillow would clip 16-bit gray at 255, which gives a white picture; scale it instead.
    return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))


def _unreadable_picture(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a readable picture: {error}; repair or remove it")
