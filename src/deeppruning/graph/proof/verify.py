"""The proof on the network's real weights: a thin copy gives what the masked full network gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.plan import Plan
from deeppruning.graph.proof.difference import difference, same_numbers, tolerance_for
from deeppruning.graph.proof.masking import MaskedRun, kept_atoms
from deeppruning.graph.proof.probe import ExpectedSteps, ThinRun, find_faults
from deeppruning.graph.proof.twin import as_double, randomized_inputs, seeded
from deeppruning.graph.trace.follow import Follower, Number, tensors_in
from deeppruning.graph.trace.tracer import Record


@dataclass
class Built:
    """The plan of a network, with what is needed to prove any cut of it again."""

    plan: Plan
    genes: Genes  # of each atom
    detached: frozenset[str]
    records: list[Record]  # of the run in evaluation mode
    notes: list[str]
    numbers: Sequence[Number] = ()  # that the forward code takes out of tensors in that run


@dataclass(frozen=True)
class Proof:
    """The largest difference between the two outputs, as a share of the outputs' own size.

    Infinite where the outputs cannot be compared; `reason` then says why.
    """

    difference: float
    tolerance: float
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the two agree up to rounding."""
        return self.difference <= self.tolerance

    @property
    def gap(self) -> str:
        """The difference in words."""
        return self.reason or f"relative difference {self.difference:.2e}"


def prove(
    model: nn.Module, built: Built, genome: Bits, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Proof:
    """Run both networks in evaluation mode on random input of the example's shape.

    In double precision where the forward code allows it, so that rounding cannot hide a mistake.
    Where random input leads to NaN (roots, logarithms), input that is not negative is tried.
    """
    for positive in (False, True):
        twin, wide_args, wide_kwargs = as_double(model, args, dict(kwargs))
        inputs = randomized_inputs((wide_args, wide_kwargs), positive=positive)
        thin = cut(twin, built.plan.recipe(genome))
        masked = MaskedRun(twin, built.detached, built.records, kept_atoms(built.genes, genome))
        masked.replayed = built.numbers
        with seeded():
            expected = masked.run(twin, *inputs)
        if not any(bool(tensor.isnan().any()) for tensor in tensors_in(expected)):
            break
    tolerance = tolerance_for(masked.coarsest)
    follower = Follower(thin)
    follower.replayed = built.numbers
    try:
        with seeded():
            outputs = follower.run(thin, *inputs)
    except Exception as error:
        return Proof(float("inf"), tolerance, f"the thin network fails: {type(error).__name__}: {error}")
    if not same_numbers(follower.numbers, masked.numbers, tolerance):
        return Proof(float("inf"), tolerance, "a value that the forward code reads differs")
    gap, reason = difference(outputs, expected)
    return Proof(gap, tolerance, reason)


def place_of_fault(
    model: nn.Module, built: Built, genome: Bits, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """The first operation of a thin network that differs from the same one in the masked network."""
    twin, wide_args, wide_kwargs = as_double(model, args, dict(kwargs))
    inputs, names = randomized_inputs((wide_args, wide_kwargs))
    thin = cut(twin, built.plan.recipe(genome))
    masked = ExpectedSteps(twin, built.detached, built.records, kept_atoms(built.genes, genome))
    masked.replayed = built.numbers
    with seeded():
        masked.run(twin, inputs, names)
    run = ThinRun(thin, built.detached, masked.steps, strict_order=True)
    run.replayed, run.due_numbers = built.numbers, masked.numbers
    with seeded():
        faults = find_faults(run, thin, inputs, names)
    if not faults:
        return "its output"
    record = built.records[faults[0].record]
    return f"{record.name} in {record.layer or 'forward'}"
