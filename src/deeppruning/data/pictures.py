"""Open pictures: PNG and JPEG by what is in the file, not by its name, and none that is vast.

Pillow knows many more formats, some of which start other programs (an EPS file starts Ghostscript).
"""

import warnings
from pathlib import Path
from typing import IO

from PIL import Image

FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 1 << 26  # of one picture; 200 MB in colours
# What Pillow raises for damage: the last two for chunks and tags that are cut short or contradict others.
PROBLEMS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, LookupError, TypeError)


def open_picture(file: Path | IO[bytes]) -> Image.Image:
    """The picture, of which only the head is read so far; `PROBLEMS` are raised for any other file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound here is tighter
        picture = Image.open(file, formats=FORMATS)
    if picture.width * picture.height > MOST_PIXELS:
        picture.close()
        raise ValueError(
            f"{picture.width}x{picture.height} pixels are more than the {MOST_PIXELS} that are read"
        )
    return picture
