"""The probe: run a thin network beside the masked full one and find the operations that differ.

A cut must equal masking at every operation, in shape and in value. Where it does not, a size or an order is
written into the forward code that labels cannot see (`view(-1, 512)`, a literal pad).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph.atoms import Bits
from deeppruning.graph.payloads import Channels, Constant, Origin
from deeppruning.graph.proof.difference import same_numbers
from deeppruning.graph.proof.masking import MaskedRun
from deeppruning.graph.rules.operations import LAYOUT, VIEWS
from deeppruning.graph.trace.follow import Follower, Number, execute, operation_name, tensors_in
from deeppruning.graph.trace.tracer import Record


@dataclass
class Step:
    """One compared operation: its name, the shapes it gives, and a fingerprint of the values."""

    name: str
    record: int  # its place in the trace of the full network
    shapes: list[tuple[int, ...] | None] = field(default_factory=list)  # None: any size
    prints: list[NDArray[np.float64] | None] = field(default_factory=list)
    dimensions: list[int | None] = field(default_factory=list)
    likes: list[tuple[torch.dtype, torch.device]] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """An operation at which a thin network went wrong, and the model's own error if it raised one."""

    record: int
    error: str | None
    strayed: bool = False  # another operation was run than the expected one


def fingerprint(tensor: Tensor, dimension: int | None) -> NDArray[np.float64] | None:
    """Weighted sums over all but the channel dimension, or over everything; None where not comparable.

    The weights distinguish positions, so that a rolled map has another fingerprint.
    """
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return None
    values = tensor.detach().double()
    rows = (
        values.reshape(1, -1) if dimension is None else values.movedim(dimension, 0).unsqueeze(-1).flatten(1)
    )
    weights = torch.cos(torch.arange(rows.shape[1], dtype=torch.float64, device=rows.device))
    return np.asarray((rows @ weights).cpu().numpy())


class ExpectedSteps(MaskedRun):
    """Masks the full network and records what every operation of a thin one must give."""

    def __init__(
        self,
        model: nn.Module,
        detached: frozenset[str],
        records: Sequence[Record],
        kept: Bits,
    ) -> None:
        super().__init__(model, detached, records, kept)
        self.steps: list[Step] = []

    def done(self, record: Record, outputs: list[Tensor]) -> None:
        """Record one operation."""
        if [tuple(tensor.shape) for tensor in outputs] != record.shapes:
            raise GraphError(
                f"operation {self.position - 1} of the network ({record.name}) gave other shapes: "
                "its forward depends on the values it sees"
            )
        if record.name not in LAYOUT:
            self.steps.append(_step(record, self.position - 1, self.kept, outputs))


def expected_shapes(records: Sequence[Record], kept: Bits) -> list[Step]:
    """The same without values, which needs no run."""
    return [
        _step(record, place, kept, None) for place, record in enumerate(records) if record.name not in LAYOUT
    ]


def _step(record: Record, place: int, kept: Bits, outputs: list[Tensor] | None) -> Step:
    """What an operation of the thin network must give: the kept channels of the masked run."""
    step = Step(_common(record.name), place, likes=record.likes)
    for number, payload in enumerate(record.payloads):
        if isinstance(payload, (Origin, Constant)):
            step.shapes.append(None)
            step.prints.append(None)
            step.dimensions.append(None)
            continue
        shape = list(record.shapes[number])
        dimension = payload.dimension if isinstance(payload, Channels) else None
        prints = fingerprint(outputs[number], dimension) if outputs is not None else None
        if isinstance(payload, Channels):
            stay = kept[payload.atoms]
            shape[payload.dimension] = int(stay.sum())
            prints = prints[stay] if prints is not None else None
        step.shapes.append(tuple(shape))
        step.prints.append(prints)
        step.dimensions.append(dimension)
    return step


def _common(name: str) -> str:
    """One name for operations that replace each other depending on memory layout."""
    return "view" if name in VIEWS else name


class _Stop(Exception):
    """Raised inside a thin run where nothing further can be compared."""


class ThinRun(Follower):
    """Runs a thin network beside the expected steps and records every operation that differs.

    After a fault the run goes on with blank tensors of the expected shapes, so that one run finds all faults;
    from there on only shapes are compared.
    """

    def __init__(
        self, model: nn.Module, detached: frozenset[str], expected: Sequence[Step], *, strict_order: bool
    ) -> None:
        super().__init__(model, detached)
        self.expected = expected
        self.strict_order = strict_order
        self.position = 0
        self.faults: list[Fault] = []
        self.due_numbers: Sequence[Number] | None = None  # None: not compared
        self.stopped: Fault | None = None  # where another operation was run than the expected one

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and compare it with the expected step."""
        name = operation_name(func)
        try:
            result = execute(func, args, kwargs)
        except Exception as error:
            if name in LAYOUT or self.position >= len(self.expected):
                raise
            return self._stand_in(func, f"{type(error).__name__}: {error}")
        outputs = tensors_in(result)
        if not outputs or name in LAYOUT:
            return result
        step = self._due(_common(name))
        if not self._fits(step, outputs):
            return self._stand_in(func, None)
        self.position += 1
        return result

    def taken_out(self, number: Number, tensors: list[Tensor]) -> Number:
        """A number that the forward code reads must be that of the masked network."""
        given = super().taken_out(number, tensors)
        if self.due_numbers is not None and not self.faults:
            place = len(self.numbers)
            if not same_numbers([number], self.due_numbers[place - 1 : place], 1e-7):
                self.faults.append(Fault(self.expected[max(0, self.position - 1)].record, None))
        return given

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A wrapped module counts as one operation."""
        step = self._due("module")
        if not self._fits(step, [output]):
            self.faults.append(Fault(step.record, None))
            raise _Stop
        self.position += 1

    def _due(self, name: str) -> Step:
        """The expected step; the run stops where the thin network runs another operation."""
        step = self.expected[self.position] if self.position < len(self.expected) else None
        if step is not None and step.name == name:
            return step
        if self.strict_order:  # else random draws differ with the sizes, and so may the operations
            record = step.record if step else self.expected[-1].record
            self.faults.append(Fault(record, None, strayed=True))
        self.stopped = Fault((step or self.expected[-1]).record, None, strayed=True)
        raise _Stop

    def _fits(self, step: Step, outputs: list[Tensor]) -> bool:
        """Whether the outputs of an operation have the shapes and values of its step."""
        if len(step.shapes) != len(outputs):  # a split into pieces of a fixed size
            return False
        if any(shape not in (None, tensor.shape) for shape, tensor in zip(step.shapes, outputs, strict=True)):
            return False
        if self.faults:
            return True
        for tensor, expected, dimension in zip(outputs, step.prints, step.dimensions, strict=True):
            if expected is not None:
                prints = fingerprint(tensor, dimension)
                if prints is None or not close(prints, expected, tensor.dtype):
                    return False
        return True

    def _stand_in(self, func: Any, error: str | None) -> Any:
        """Blank tensors in place of the expected results."""
        step = self.expected[self.position]
        self.faults.append(Fault(step.record, error))
        self.position += 1
        if func._schema.is_mutable or any(shape is None for shape in step.shapes):
            raise _Stop
        blanks = [
            torch.zeros(shape or (), dtype=dtype, device=device)
            for shape, (dtype, device) in zip(step.shapes, step.likes, strict=True)
        ]
        returns = func._schema.returns
        single = len(returns) == 1 and not isinstance(returns[0].type, torch.ListType)
        return blanks[0] if single else blanks


def close(prints: NDArray[np.float64], expected: NDArray[np.float64], dtype: torch.dtype) -> bool:
    """Equal up to rounding in the network's precision, and not finite at the same positions."""
    tolerance = 1e-7 if dtype == torch.float64 else 2e-3
    sound = np.isfinite(expected)
    if prints.shape != expected.shape or not np.array_equal(np.isfinite(prints), sound):
        return False
    scale = max(1.0, float(np.abs(expected[sound]).max(initial=0.0)))
    return bool((np.abs(prints[sound] - expected[sound]) <= tolerance * scale).all())


def find_faults(
    run: ThinRun, thin: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Fault]:
    """The operations of the thin network that differ from the masked one, in order."""
    expected = run.expected
    try:
        run.run(thin, args, kwargs)
        if run.position < len(expected) and run.strict_order and not run.faults:
            return [Fault(expected[run.position].record, None, strayed=True)]
    except _Stop:
        pass
    except Exception as raised:
        step = expected[min(run.position, len(expected) - 1)]
        return run.faults or [Fault(step.record, f"{type(raised).__name__}: {raised}")]
    return run.faults
