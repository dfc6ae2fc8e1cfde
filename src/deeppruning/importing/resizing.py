"""Resize and Upsample: torch's own interpolation where it computes the same, else each axis by itself.

Writers of files disagree about which pixel of the input a pixel of the result lies on. With a doubled size,
pixel 1 of the result lies at 0.25 of the input by half pixels, at 0.5 without them ("asymmetric").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deeppruning.errors import InputError
from deeppruning.importing.values import as_tensor, integers, operation

HALF_PIXELS = ("half_pixel", "pytorch_half_pixel")
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}  # torch's names, by the number of axes


@operation("Resize", "Upsample")
def resize(value: Tensor, *given: Any, **attributes: Any) -> Tensor:
    """Another size of the spatial axes, by scales or sizes of all of them."""
    # Inputs are scales alone in Upsample and in opset 10, then a region, scales and sizes.
    old = len(given) == 1
    scales, sizes = (given[0], None) if old else (*given[1:], None)[:2]
    mode = attributes.get("mode", "nearest")
    place = attributes.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    rounding = attributes.get("nearest_mode", "floor" if old else "round_prefer_floor")
    if place == "tf_crop_and_resize":
        raise InputError("it resizes a region (tf_crop_and_resize)")
    before = list(value.shape[2:])
    if sizes is not None:
        after = [int(size) for size in integers(sizes)[-len(before) :]]
        factors = [new / size for new, size in zip(after, before, strict=True)]
    else:
        factors = [float(scale) for scale in np.asarray(as_tensor(scales)).reshape(-1)[-len(before) :]]
        after = [int(size * factor) for size, factor in zip(before, factors, strict=True)]
    # Torch divides the sizes, ONNX takes the written scales: the same where these lead to whole sizes.
    exact = all(size * factor == new for size, factor, new in zip(before, factors, after, strict=True))
    if mode == "cubic":
        options = {"align_corners": place == "align_corners", "antialias": bool(attributes.get("antialias"))}
        return F.interpolate(value, size=after, mode="bicubic", **options)
    if mode in ("linear", "bilinear"):
        if place not in (*HALF_PIXELS, "align_corners") or not exact:
            return _by_axes(value, after, factors, place, None)
        options = {"align_corners": place == "align_corners", "antialias": bool(attributes.get("antialias"))}
        return F.interpolate(value, size=after, mode=LINEAR[len(before)], **options)
    if place == "asymmetric" and rounding == "floor" and exact:
        return F.interpolate(value, size=after, mode="nearest")
    # Between two pixels there is a choice only where the size becomes smaller.
    whole = exact and all(factor % 1 == 0 for factor in factors)
    if place in HALF_PIXELS and rounding.startswith("round") and whole:
        return F.interpolate(value, size=after, mode="nearest-exact")
    return _by_axes(value, after, factors, place, rounding)


def _by_axes(
    value: Tensor, after: Sequence[int], factors: Sequence[float], place: str, rounding: str | None
) -> Tensor:
    """Each axis in turn: the nearest pixels, or without a rounding the two around each place, weighted."""
    for dim, (new, factor) in enumerate(zip(after, factors, strict=True), start=2):
        size = value.shape[dim]
        if new == size and factor == 1:
            continue
        places = [_source(number, size, new, factor, place) for number in range(new)]
        if rounding is not None:
            value = _taken(value, dim, [_rounded(where, rounding) for where in places])
            continue
        inside = [min(max(where, 0.0), size - 1.0) for where in places]
        low = [math.floor(where) for where in inside]
        shape = [1] * value.dim()
        shape[dim] = new
        share = torch.tensor([where - first for where, first in zip(inside, low, strict=True)])
        share = share.to(value).reshape(shape)
        value = (
            _taken(value, dim, low) * (1 - share) + _taken(value, dim, [first + 1 for first in low]) * share
        )
    return value


def _source(number: int, size: int, new: int, factor: float, place: str) -> float:
    """Where a pixel of the result lies in the input."""
    if place == "align_corners":
        return number * (size - 1) / (new - 1) if new > 1 else 0.0
    if place == "asymmetric":
        return number / factor
    if place == "tf_half_pixel_for_nn":
        return (number + 0.5) / factor
    if place == "pytorch_half_pixel" and new == 1:
        return 0.0
    if place == "half_pixel_symmetric":
        shift = size / 2 * (1 - new / (factor * size))
        return shift + (number + 0.5) / factor - 0.5
    return (number + 0.5) / factor - 0.5


def _rounded(where: float, rounding: str) -> int:
    """A coordinate of an ONNX Resize as a whole number."""
    if rounding == "floor":
        return math.floor(where)
    if rounding == "ceil":
        return math.ceil(where)
    return math.ceil(where - 0.5) if rounding == "round_prefer_floor" else math.floor(where + 0.5)


def _taken(value: Tensor, dim: int, places: Sequence[int]) -> Tensor:
    """The pixels at some places; those outside are the outermost ones."""
    inside = [min(max(place, 0), value.shape[dim] - 1) for place in places]
    return value.index_select(dim, torch.tensor(inside, dtype=torch.int64, device=value.device))
