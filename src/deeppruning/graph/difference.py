"""How far the outputs of two networks are apart."""

from typing import Any

from deeppruning.graph.follow import tensors_in


def difference(found: Any, expected: Any) -> float:
    """The largest difference, as a share of the expected output's own size."""
    worst = 0.0
    for left, right in zip(tensors_in(found), tensors_in(expected), strict=True):
        if left.shape != right.shape:
            return float("inf")
        if left.is_floating_point() and left.numel():
            scale = max(float(right.abs().max()), 1e-12)
            worst = max(worst, float((left - right).abs().max()) / scale)
    return worst
