"""The proof on the network's real weights: a thin copy gives what the silenced full network gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.graph.build import Built
from deeppruning.graph.cut import cut
from deeppruning.graph.follow import tensors_in
from deeppruning.graph.plan import Bits
from deeppruning.graph.silence import SilentRun, kept_atoms
from deeppruning.graph.twin import as_double, randomized_inputs, seeded

# What rounding may do over a whole network, by the coarsest precision its channels were held in.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Proof:
    """The largest difference between the two outputs, as a share of the outputs' own size.

    Infinite where the outputs cannot be compared or say nothing; `reason` then tells why.
    """

    difference: float
    tolerance: float
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the two agree to rounding."""
        return self.difference <= self.tolerance


def prove(
    model: nn.Module, built: Built, genome: Bits, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Proof:
    """Run both networks in evaluation mode on random input of the example's shape.

    In double precision where the forward code allows it, so that rounding cannot hide a mistake.
    Input that is not negative is tried where other input leads to no numbers (roots, logarithms).
    """
    for positive in (False, True):
        twin, wide_args, wide_kwargs = as_double(model, args, dict(kwargs))
        inputs = randomized_inputs((wide_args, wide_kwargs), positive=positive)
        thin = cut(twin, built.plan.recipe(genome))
        kept = kept_atoms(built.classes, built.gene_of_class, genome)
        silent = SilentRun(twin, built.detached, built.records, kept)
        with seeded():
            expected = silent.run(twin, *inputs)
        if not any(bool(tensor.isnan().any()) for tensor in tensors_in(expected)):
            break
    tolerance = TOLERANCES.get(silent.coarsest, TOLERANCES[torch.bfloat16])
    try:
        with seeded():
            found = thin(*inputs[0], **inputs[1])
    except Exception as error:
        return Proof(float("inf"), tolerance, f"the thin network fails: {type(error).__name__}: {error}")
    return Proof(*_compare(tensors_in(found), tensors_in(expected), tolerance))


def _compare(found: list[Tensor], expected: list[Tensor], tolerance: float) -> tuple[float, float, str]:
    """The largest difference of all pairs, the tolerance, and why where nothing can be compared."""
    worst, reason = 0.0, ""
    if len(found) != len(expected):
        worst, reason = float("inf"), f"{len(found)} outputs where {len(expected)} are due"
    elif not expected:
        worst, reason = float("inf"), "the network's output holds no tensor"
    else:
        for place, (left, right) in enumerate(zip(found, expected, strict=True)):
            difference, why = _difference(left, right)
            if difference > worst:
                worst, reason = difference, why and f"output {place} {why}"
    return worst, tolerance, reason


def _difference(left: Tensor, right: Tensor) -> tuple[float, str]:
    """The difference of one output from the one that is due, and why where it cannot be told in numbers."""
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
    """The values in ordinary memory, however they are stored."""
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()
