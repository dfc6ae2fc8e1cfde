"""Pictures in files as a source of images: each is decoded, brought to size and cropped when it is read."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deeppruning.data.names import FileNames
from deeppruning.data.pictures import PROBLEMS, open_picture
from deeppruning.data.source import ImageSource
from deeppruning.errors import DataError

_GRAY = ("1", "L", "LA", "I", "I;16")
_WHOLE = 1e-6  # a crop that leaves less than this of a pixel is the whole picture


@dataclass(frozen=True, eq=False)
class PictureFiles(ImageSource):
    """Files by number, as images of one mode and size (height, width).

    A picture is resized until it just covers `size`, and what then sticks out is cut off on both sides
    alike. With `resize`, the shorter side becomes that many pixels first: the image is cut from the middle,
    or, with `shift`, from anywhere.
    """

    names: FileNames
    lengths: NDArray[np.int64]  # of the files, in bytes
    mode: str
    size: tuple[int, int]
    resize: int | None = None

    @property
    def roomy(self) -> bool:  # type: ignore[override]
        """Whether pictures are made larger than the image that is cut out of them."""
        return self.resize is not None and self.resize > min(self.size)

    @property
    def channels(self) -> int:
        """Of each image."""
        return 1 if self.mode == "L" else 3

    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """Decode one picture; a file that cannot be is named."""
        path, (height, width) = self.names[index], self.size
        with opened(path) as picture:
            try:
                converted = _eight_bit(picture).convert(self.mode)
            except PROBLEMS as error:
                raise _unreadable(path, error) from error
        box = self._box(converted, key if shift and self.roomy else None)
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

    def _box(self, picture: Image.Image, key: int | None) -> tuple[float, float, float, float]:
        """The part of a picture that becomes the image: from the middle, or where the key says."""
        room = (self.resize or min(self.size)) / min(self.size)
        scale = room * max(self.size[0] / picture.height, self.size[1] / picture.width)
        across, down = (key >> 32, key & 0xFFFFFFFF) if key is not None else (1, 1)
        steps = 1 << 32 if key is not None else 2
        left, right = _span(picture.width, self.size[1] / scale, (across % steps) / steps)
        top, bottom = _span(picture.height, self.size[0] / scale, (down % steps) / steps)
        return left, top, right, bottom


def _span(whole: int, part: float, place: float) -> tuple[float, float]:
    """Where a part of a side begins and ends.

    >>> _span(10, 4.0, 0.5), _span(10, 9.9999999, 0.5)
    ((3.0, 7.0), (0, 10))
    """
    if whole - part < _WHOLE:
        return 0, whole
    start = (whole - part) * place
    return start, start + part


def is_gray(picture: Image.Image) -> bool:
    """Whether a picture has no colours by its kind."""
    return picture.mode in _GRAY


def opened(path: Path) -> Image.Image:
    """A picture of which only the head is read so far; one that is none is refused by its name."""
    try:
        return open_picture(path)
    except PROBLEMS as error:
        raise _unreadable(path, error) from error


def _eight_bit(picture: Image.Image) -> Image.Image:
    if picture.mode not in ("I", "I;16"):
        return picture
    # Pillow would cut 16-bit gray off at 255, leaving a white picture, where scaling is meant.
    return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a readable picture: {error}; repair or remove it")
