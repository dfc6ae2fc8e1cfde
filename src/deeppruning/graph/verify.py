"""The proof on the network's real weights: a thin copy gives what the silenced full network gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from deeppruning.graph.build import Built
from deeppruning.graph.cut import cut
from deeppruning.graph.difference import difference
from deeppruning.graph.plan import Bits
from deeppruning.graph.silence import SilentRun, kept_atoms
from deeppruning.graph.twin import as_double, randomized_inputs, seeded


@dataclass(frozen=True)
class Proof:
    """The largest difference between the two outputs, as a share of the outputs' own size."""

    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the two agree to rounding."""
        return self.difference <= self.tolerance


def prove(
    model: nn.Module, built: Built, genome: Bits, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Proof:
    """Run both networks in evaluation mode on random input of the example's shape.

    In double precision where the forward code allows it, so that rounding cannot hide a mistake.
    """
    twin, args, kwargs = as_double(model, args, dict(kwargs))
    args, kwargs = randomized_inputs(args), randomized_inputs(kwargs)
    thin = cut(twin, built.plan.recipe(genome))
    with seeded():
        found = thin(*args, **kwargs)
    kept = kept_atoms(built.classes, built.gene_of_class, genome)
    with seeded():
        expected = SilentRun(twin, built.detached, built.records, kept).run(twin, args, kwargs)
    double = all(tensor.dtype == torch.float64 for tensor in twin.parameters() if tensor.is_floating_point())
    return Proof(difference(found, expected), 1e-8 if double else 1e-3)
