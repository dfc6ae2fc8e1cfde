"""The difference between the outputs of two networks, with a reason where it is not a number."""

import cmath
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeppruning.graph.trace.follow import Number, tensors_in

# The effect of rounding over a whole network, by the lowest precision of its channels.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def tolerance_for(coarsest: torch.dtype) -> float:
    """The difference that rounding may cause, given the lowest precision of the channels."""
    return TOLERANCES.get(coarsest, TOLERANCES[torch.bfloat16])


def difference(outputs: Any, expected: Any) -> tuple[float, str]:
    """The largest relative difference of all outputs; infinite, with a reason, if they cannot be compared."""
    given, due = tensors_in(outputs), tensors_in(expected)
    if len(given) != len(due):
        return float("inf"), f"{len(given)} outputs where {len(due)} are due"
    if not due:
        return float("inf"), "the network's output holds no tensor"
    worst, reason = 0.0, ""
    for place, (left, right) in enumerate(zip(given, due, strict=True)):
        gap, why = _gap(left, right)
        if gap > worst:
            worst, reason = gap, why and f"output {place} {why}"
    return worst, reason


def same_numbers(numbers: Sequence[Number], expected: Sequence[Number], tolerance: float) -> bool:
    """Whether numbers that forward code takes out of tensors are the same up to rounding."""
    pairs = zip(numbers, expected, strict=False)
    return len(numbers) == len(expected) and all(
        left == right
        or (left is not None and right is not None and cmath.isclose(left, right, rel_tol=tolerance))
        for left, right in pairs
    )


def _gap(left: Tensor, right: Tensor) -> tuple[float, str]:
    """The relative difference of one output, and the reason where it is infinite."""
    if left.shape != right.shape or left.dtype != right.dtype:
        due = f"{tuple(right.shape)} and {right.dtype}"
        return float("inf"), f"is of {tuple(left.shape)} and {left.dtype}, where {due} are due"
    left, right = _plain(left), _plain(right)
    if not right.numel():
        return 0.0, ""
    if left.isnan().any() or right.isnan().any():
        return float("inf"), "is not a number"
    if not (right.is_floating_point() or right.is_complex()):
        return (0.0, "") if torch.equal(left, right) else (float("inf"), "holds other whole numbers")
    finite = right.isfinite()
    if not torch.equal(left[~finite], right[~finite]) or not left[finite].isfinite().all():
        return float("inf"), "is infinite at other places"
    if not finite.any():
        return float("inf"), "is infinite"
    gap = float((left[finite] - right[finite]).abs().max())
    return gap / max(float(right[finite].abs().max()), 1e-12), ""


def _plain(tensor: Tensor) -> Tensor:
    """The values as a dense tensor."""
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()
