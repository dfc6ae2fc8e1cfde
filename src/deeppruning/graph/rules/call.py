"""One operation of the traced run as the rules see it: arguments by name, results, and where it ran."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.graph.atoms import Atoms, AtomTable, Positions, Site
from deeppruning.graph.payloads import Channels, Constant, Fixed, Origin, Payload


@dataclass(frozen=True)
class Pattern:
    """A constant that differs between channels: equal numbers where it has equal values."""

    atoms: Atoms
    values: Positions


@dataclass
class Call:
    """A call of an aten operation while the network runs on labels."""

    name: str  # without overload and without the trailing underscore of in-place forms
    function: Any
    args: dict[str, Any]
    outputs: list[Tensor]
    table: AtomTable
    lookup: Callable[[Tensor], Payload]  # freezes the channels of statistics
    layer: str
    module: nn.Module | None
    site: Site  # its place in the code
    peek: Callable[[Tensor], Payload]  # leaves statistics as they are
    modules: tuple[str, ...] = ()  # the call stack of submodules, outermost first
    touched: list[Channels] = field(default_factory=list)  # dimensions of parameters that it computes with
    patterns: list[Pattern] = field(default_factory=list)
    normed: set[Site] = field(
        default_factory=set
    )  # where the statistics were taken that it scales channels by

    def payload(self, name: str) -> Payload | None:
        """The payload of a tensor argument, None if it is absent."""
        value = self.args.get(name)
        return self.lookup(value) if isinstance(value, Tensor) else None

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor among the arguments, those in lists too, with the argument's name."""
        for name, value in self.args.items():
            if isinstance(value, Tensor):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((name, item) for item in value if isinstance(item, Tensor))

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor among the arguments, those in lists too."""
        return (tensor for _, tensor in self.named_tensors())

    def inputs(self) -> list[Channels]:
        """The payloads of the arguments that carry channels."""
        payloads = (self.peek(tensor) for tensor in self.tensors())
        return [payload for payload in payloads if isinstance(payload, Channels)]

    @property
    def in_place(self) -> bool:
        """Whether the operation writes into its first argument."""
        return bool(self.function._schema.is_mutable) and self.function._schema.name.endswith("_")

    @property
    def place(self) -> str:
        """The operation and the layer it ran in, in words."""
        return f"{self.name} in {self.layer}" if self.layer else f"{self.name} in the network's forward"

    def freeze_inputs(self, reason: str) -> list[Payload]:
        """Freeze all channels and parameters that are read; the results keep their size."""
        for tensor in self.tensors():
            payload = self.lookup(tensor)
            if isinstance(payload, Channels):
                self.table.freeze(payload.atoms, reason)
            elif isinstance(payload, Origin):
                self.table.pin(payload.name, reason)
        return [Fixed(reason)] * len(self.outputs)

    def loose(self, tensor: Tensor) -> Payload:
        """The payload, with a parameter of one number per channel turned into channels of its own.

        This ties parameters that are combined before they meet an activation (a frozen batch norm, running
        statistics).
        """
        payload = self.lookup(tensor)
        if not isinstance(payload, Origin):
            return payload
        wide = payload.wide_dimensions()
        if len(wide) != 1:
            return payload
        for dimension, size in enumerate(tensor.shape):
            matched = payload.own_dimension(dimension) if size > 1 else None
            if matched is not None:
                return Channels(dimension, self.parameter_atoms(payload, wide[0])[matched[1]])
        return payload

    def parameter_atoms(self, origin: Origin, dimension: int) -> Atoms:
        """Atoms for the positions along one dimension of a parameter, before it meets any channels."""
        own = self.table.issue(
            (origin.name, "loose", dimension), origin.shape[dimension], kind="loose", layer=origin.name
        )
        self.table.bind(origin.name, dimension, own)
        return own

    def touch(self, origins: Iterable[Payload]) -> None:
        """Note the dimensions that this operation computes with: a size written into it freezes them."""
        for origin in origins:
            if isinstance(origin, Origin):
                wide = origin.wide_dimensions()
                self.touched += [
                    Channels(dimension, self.parameter_atoms(origin, dimension)) for dimension in wide
                ]

    def _lay(self, rows: Tensor, atoms: Atoms) -> None:
        """Note a constant, given as one row per channel, that differs between channels."""
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            values = np.unique(rows.double().cpu().numpy(), axis=0, return_inverse=True)[1]
            self.patterns.append(Pattern(atoms, values.reshape(-1)))

    def unmoved(self, name: str) -> Origin | None:
        """The argument as a whole parameter in its own shape, None if it is anything else."""
        payload = self.payload(name)
        return payload if isinstance(payload, Origin) and payload.unmoved else None

    def bind_along(self, tensor: Tensor, dimension: int, atoms: Atoms) -> None:
        """A tensor meets these channels along a dimension: index its parameter by them, or freeze them.

        A tensor with a single position is broadcast, and a constant made in the forward code takes any size;
        neither belongs to certain channels.
        """
        payload = self.lookup(tensor)
        if tensor.shape[dimension] == 1 and len(atoms) > 1:
            return
        if isinstance(payload, Constant):
            self._lay(tensor.movedim(dimension, 0).reshape(len(atoms), -1), atoms)
        elif isinstance(payload, Fixed):
            if len(atoms) > 1:
                self.table.freeze(atoms, payload.reason)
        elif isinstance(payload, Origin):
            matched = payload.own_dimension(dimension)
            if matched is None:
                if len(atoms) > 1:
                    reason = f"{payload.name} is not indexed by channel at {self.place}"
                    self.table.freeze(atoms, reason)
                    self.table.pin(payload.name, reason)
                return
            own, positions = matched
            by_position = _arrange(atoms, positions, payload.shape[own])
            if by_position is None:
                reason = f"only a part of {payload.name} is used at {self.place}"
                self.table.freeze(atoms, reason)
                self.table.pin(payload.name, reason)
                return
            self.table.tie(by_position[positions], atoms)
            self.table.bind(payload.name, own, by_position)


def _arrange(atoms: Atoms, positions: Positions, size: int) -> Atoms | None:
    """The atoms by position in the parameter; None when some position has none."""
    by_position = np.zeros(size, dtype=np.int64)
    by_position[positions] = atoms
    return by_position if by_position.all() else None
