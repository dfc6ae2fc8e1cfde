"""The boxes of two YOLOv8 files: how many of the first one's the second finds, of the same class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.deploying.onnx_graph import open_session

SURE, SAME, OVERLAP = 0.2, 0.5, 0.45  # score of a box, overlap of equal boxes, overlap of which one goes

Boxes = list[tuple[int, NDArray[Any]]]


def boxes_that_stay(before: Path, after: Path, inputs: dict[str, Any]) -> tuple[float, int]:
    """The share of the first file's boxes that the second has, of the same class, and how many there are."""
    old, new = (boxes_of(path, inputs) for path in (before, after))
    stays = [
        any(kind == other and overlap(box, theirs) > SAME for other, theirs in new[place])
        for place, found in enumerate(old)
        for kind, box in found
    ]
    return (float(np.mean(stays)) if stays else 1.0), len(stays)


def boxes_of(path: Path, inputs: dict[str, Any]) -> list[Boxes]:
    """The boxes of each picture: class and corners, those that overlap a surer one left out."""
    session = open_session(path)
    (name,) = inputs
    found: list[Boxes] = []
    for picture in inputs[name]:
        rows = session.run(None, {name: picture[None].numpy()})[0][0].T
        kinds, scores = rows[:, 4:].argmax(1), rows[:, 4:].max(1)
        kept: Boxes = []
        for place in np.argsort(-scores):
            if scores[place] < SURE:
                break
            x, y, width, height = rows[place, :4]
            box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            if all(kind != kinds[place] or overlap(box, other) < OVERLAP for kind, other in kept):
                kept.append((int(kinds[place]), box))
        found.append(kept)
    return found


def overlap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The common area of two boxes over that of both."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    areas = sum(float(np.prod(box[2:] - box[:2])) for box in (one, other))
    return common / max(areas - common, 1e-9)
