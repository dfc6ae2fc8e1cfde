"""Data files for tests, in the formats they have elsewhere."""

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_picture(path: Path, value: int, mode: str = "RGB", size: tuple[int, int] = (6, 5)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("L", "I;16") else (value, 0, 0)).save(path)


def write_idx(folder: Path, packed: bool) -> dict[str, np.ndarray]:
    arrays = {}
    for part, count in (("train", 20), ("t10k", 7)):
        arrays[f"{part}-images-idx3-ubyte"] = np.arange(count * 12, dtype=np.uint8).reshape(count, 3, 4)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        raw = idx_bytes(array)
        (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(raw) if packed else raw)
    return arrays


def write_pictures(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 5) -> None:
    for label, name in enumerate(classes):
        for index in range(count):
            write_picture(folder / name / f"{index}.png", 100 * label + index)
