"""A folder of pictures as the input of an ONNX file: size, numbers, colours and layout that it expects."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from deeppruning.data.folders import SUFFIXES
from deeppruning.data.pictures import FileNames, PictureFiles
from deeppruning.errors import InputError
from deeppruning.importing.file import FileValue
from deeppruning.options import DATA, Options, option

OPEN_SIZE = 224  # of a side that the file leaves open
LARGEST_SIDE = 8192
PIXELS = 255.0
ORDERS = ("rgb", "bgr")
LAYOUTS = ("nchw", "nhwc")
COLOURS = (1, 3)  # numbers of channels that pictures have


_picture = partial(option, heading=DATA, common=True)


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Options):
    """How pictures become numbers: (pixel * scale - mean) / std, with pixels of 0 to 255.

    What is None is read from the file's input: the size and the layout from its shape; the scale is 1/255, or
    1 where the input takes bytes.
    """

    image_size: tuple[int, int] | None = _picture(  # height and width
        None, "Resize pictures to this size; they keep their proportions and are cropped.", low=1,
        metavar="SIDE|HxW",
        default_text=f"that of the file's input or its metadata, or {OPEN_SIZE} if it is open",
    )  # fmt: skip
    scale: float | None = _picture(
        None, "Factor for pixels in 0..255.", default_text="1/255; 1 if the input takes bytes"
    )
    mean: tuple[float, ...] = _picture(
        (0.0,), "Mean to subtract after scaling: one number, or one per channel.", low=-math.inf,
        metavar="M,M,M", default_text="0",
    )  # fmt: skip
    std: tuple[float, ...] = _picture(
        (1.0,), "Standard deviation to divide by afterwards: one number, or one per channel.", low=-math.inf,
        metavar="S,S,S", default_text="1",
    )  # fmt: skip
    colours: str = _picture("rgb", "Order of the colours.", choices=ORDERS)
    layout: str | None = _picture(
        None, "Axes of the input: channels first (nchw) or last (nhwc).", choices=LAYOUTS,
        default_text="by the shape of the file's input",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale == 0:
            raise InputError("scale must be a number above 0, such as 0.00392 for 1/255, got 0")
        if not all(self.std):
            raise InputError(f"std must not be zero, got {self.std}")


@dataclass(frozen=True)
class InputForm:
    """What pictures become, all settled."""

    size: tuple[int, int]
    channels: int
    layout: str
    scale: float
    guessed_size: bool = False  # the file leaves it open, and nobody said

    def __str__(self) -> str:
        height, width = self.size
        return f"{height}x{width}, {self.channels} channels, {self.layout}, pixels times {self.scale:.4g}"


def form_of(value: FileValue, options: PictureOptions) -> InputForm:
    """What the pictures become, by the options and by the shape that the file gives for its input."""
    shape = value.shape if value.shape is not None else (None, *((3, None, None)))
    if len(shape) != 4:
        raise InputError(
            f"the input {value.name!r} has {len(shape)} axes, pictures need 4; give an .npz file"
        )
    layout = options.layout or ("nhwc" if shape[3] in COLOURS and shape[1] not in COLOURS else "nchw")
    sides, channels = (shape[1:3], shape[3]) if layout == "nhwc" else (shape[2:], shape[1])
    channels = 3 if not isinstance(channels, int) else channels
    if channels not in COLOURS:
        raise InputError(
            f"the input {value.name!r} has {channels} channels (of {'x'.join(map(str, shape))}, {layout}), "
            "pictures have 1 or 3; give another --layout, or the inputs as an .npz file"
        )
    fixed = [side if isinstance(side, int) else None for side in sides]
    wanted = options.image_size
    if wanted is not None and any(have not in (None, want) for have, want in zip(fixed, wanted, strict=True)):
        raise InputError(
            f"the file takes pictures of {fixed[0] or 'any'}x{fixed[1] or 'any'}, not "
            f"{wanted[0]}x{wanted[1]}: leave --image-size out"
        )
    size = wanted or (fixed[0] or fixed[1] or OPEN_SIZE, fixed[1] or fixed[0] or OPEN_SIZE)
    if max(size) > LARGEST_SIDE:
        raise InputError(f"pictures of {size[0]}x{size[1]} are larger than {LARGEST_SIDE} pixels a side")
    scale = options.scale if options.scale is not None else 1.0 if value.dtype.kind in "iu" else 1 / PIXELS
    return InputForm(size, channels, layout, scale, guessed_size=wanted is None and None in fixed)


def stated_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """The size of pictures that the metadata of a file names, as Ultralytics writes it; None without one.

    >>> stated_size({"imgsz": "[320, 640]"})
    (320, 640)
    """
    match = re.fullmatch(r"\[(\d{1,4}), *(\d{1,4})\]", metadata.get("imgsz", ""))
    return (int(match[1]), int(match[2])) if match and int(match[1]) and int(match[2]) else None


def read_pictures(folder: Path, value: FileValue, options: PictureOptions, most: int) -> Tensor:
    """Pictures of a folder and the folders in it, evenly spread, as one tensor."""
    form = form_of(value, options)
    names = find_pictures(folder)
    chosen = [names[int(place)] for place in np.linspace(0, len(names) - 1, min(most, len(names)))]
    lengths = np.array([(folder / name).stat().st_size for name in chosen], np.int64)
    mode = "L" if form.channels == 1 else "RGB"
    files = PictureFiles(FileNames.of(folder, chosen), lengths, mode, form.size)
    mean, std = (_each(numbers, form.channels) for numbers in (options.mean, options.std))
    made = None
    for place in range(len(chosen)):
        pixels, _ = files.read(place, 0, shift=False)
        if options.colours == "bgr":
            pixels = pixels.flip(0)
        image = (pixels.double() * form.scale - mean) / std
        image = image.permute(1, 2, 0) if form.layout == "nhwc" else image
        if made is None:
            kind = (
                torch.float32 if value.dtype.kind == "f" else torch.from_numpy(np.zeros(0, value.dtype)).dtype
            )
            made = torch.empty(len(chosen), *image.shape, dtype=kind)
        made[place] = image
    assert made is not None
    return made


def find_pictures(folder: Path) -> list[str]:
    """The pictures of a folder and of those inside it, relative to it, in alphabetical order."""
    names = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        inside = Path(root).relative_to(folder)
        names += [str(inside / name) for name in sorted(files) if name.lower().endswith(SUFFIXES)]
    if not names:
        raise InputError(f"{folder} has no pictures ({', '.join(SUFFIXES)}), nor have the folders in it")
    return names


def _each(numbers: tuple[float, ...], channels: int) -> Tensor:
    """One number per channel of the pictures."""
    if len(numbers) not in (1, channels):
        raise InputError(f"mean and std need 1 or {channels} numbers, got {len(numbers)}: {numbers}")
    listed = list(numbers) * (channels if len(numbers) == 1 else 1)
    return torch.tensor(listed, dtype=torch.float64).view(-1, 1, 1)
