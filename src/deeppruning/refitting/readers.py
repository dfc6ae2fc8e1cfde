"""Who reads a layer's answers: a norm at once, or a sum with something that was there before.

Where an answer is only ever added to another one, the layer can make up for what the other lacks. The
network's code is not read for that: the original is watched while it runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

SUMS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
# They look at a tensor without reading its values.
LOOKS = {
    "__get__",
    "__len__",
    "dim",
    "is_contiguous",
    "is_floating_point",
    "is_inference",
    "numel",
    "size",
    "stride",
    "type",
}


@dataclass(frozen=True)
class Anchor:
    """Where a tensor can be had in any copy of the network: what goes into a module or comes out of it.

    A module without parameters may still lie between it and the sum, as in a shortcut that pads.
    """

    module: str
    into: bool
    through: str | None = None


@dataclass
class _Seen:
    tensor: weakref.ref[Tensor]
    anchor: Anchor
    version: int
    moment: int

    def still(self, value: Tensor) -> bool:
        """Whether it is this tensor, and nobody wrote into it since."""
        return self.tensor() is value and self.version == version_of(value)


@dataclass
class _Answered:
    tensor: weakref.ref[Tensor]
    layer: str
    version: int
    began: int
    uses: int = 0
    norm: str | None = None
    of: _Answered | None = None  # of a norm: the layer's answer that it reads


class Readers(TorchFunctionMode):
    """Watches one run; afterwards `norms` and `sums` say what is read in one way only."""

    def __init__(self, on_sum: Callable[[str, Tensor], Any]) -> None:
        super().__init__()
        self.on_sum = on_sum
        self.paused = False
        self.calls: dict[str, int] = {}
        self._moment = 0
        self._began: dict[str, int] = {}
        self._seen: dict[int, _Seen] = {}
        self._made: dict[int, tuple[weakref.ref[Tensor], str, _Seen]] = {}
        self._answers: dict[int, _Answered] = {}
        self._chains: list[_Answered] = []
        self._sums: list[tuple[_Answered, Anchor, Any]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operation of the run passes here."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not self.paused and name not in LOOKS:
            self._read(name, args, kwargs)
        return func(*args, **kwargs)

    def begins(self, name: str, inputs: Sequence[Any]) -> None:
        """A module is about to run."""
        self.calls[name] = self.calls.get(name, 0) + 1
        self._see(inputs, Anchor(name, into=True))
        self._moment += 1
        self._began[name] = self._moment

    def ends(self, name: str, inputs: Sequence[Any], output: Any, *, plain: bool) -> None:
        """A module has run; a plain one has no parameters and can run again."""
        self._see((output,), Anchor(name, into=False))
        if plain and len(inputs) == 1 and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            seen = self._seen.get(id(inputs[0]))
            if seen is not None and seen.still(inputs[0]) and output is not inputs[0]:
                self._made[id(output)] = (weakref.ref(output), name, seen)

    def answers(self, name: str, output: Tensor) -> None:
        """A layer has answered."""
        found = _Answered(weakref.ref(output), name, version_of(output), self._began[name])
        self._answers[id(output)] = found

    def normed(self, name: str, read: Tensor, output: Tensor) -> None:
        """A norm has read and answered; it goes with the layer before it, if that is what it read."""
        layer = self._known(read)
        if layer is None or layer.norm is not None:
            return
        found = _Answered(
            weakref.ref(output), layer.layer, version_of(output), layer.began, norm=name, of=layer
        )
        self._answers[id(output)] = found
        self._chains.append(found)

    def returned(self, outputs: Sequence[Tensor]) -> None:
        """The network has answered with these, which is a use as well."""
        for output in outputs:
            found = self._known(output)
            if found is not None:
                found.uses += 1

    def norms(self) -> Iterator[tuple[str, str]]:
        """Layers and the norms that alone read them."""
        for chain in self._chains:
            assert chain.of is not None and chain.norm is not None
            if chain.of.uses == 1 and self.calls[chain.norm] == 1 == self.calls[chain.layer]:
                yield chain.layer, chain.norm

    def sums(self) -> Iterator[tuple[str, str | None, Anchor, Any]]:
        """Layers whose answers, behind a norm or not, are only added: to what, and what `on_sum` noted."""
        for answered, anchor, noted in self._sums:
            once = all(
                self.calls[name] == 1 for name in (answered.layer, answered.norm, anchor.module) if name
            )
            if once and answered.uses == 1 and (answered.of is None or answered.of.uses == 1):
                yield answered.layer, answered.norm, anchor, noted

    def _see(self, values: Sequence[Any], anchor: Anchor) -> None:
        if not values or not isinstance(values[0], Tensor):
            return
        value, known = values[0], self._seen.get(id(values[0]))
        if known is None or not known.still(value):
            self._seen[id(value)] = _Seen(weakref.ref(value), anchor, version_of(value), self._moment)

    def _known(self, value: Tensor) -> _Answered | None:
        found = self._answers.get(id(value))
        if found is None or found.tensor() is not value or found.version != version_of(value):
            return None
        return found

    def _read(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        for value in _tensors((*args, *kwargs.values())):
            found = self._known(value)
            if found is not None:
                found.uses += 1
        if name in SUMS and len(args) == 2 and not kwargs and all(isinstance(v, Tensor) for v in args):
            for mine, other in (args, args[::-1]):
                self._sum(mine, other)

    def _sum(self, mine: Tensor, other: Tensor) -> None:
        answered = self._known(mine)
        if answered is None or mine.shape != other.shape or mine is other:
            return
        anchor = self._anchor(other, answered.began)
        if anchor is not None:
            self.paused = True
            self._sums.append((answered, anchor, self.on_sum(answered.layer, other)))
            self.paused = False

    def _anchor(self, other: Tensor, began: int) -> Anchor | None:
        """Where the other side of a sum can be had before a layer begins."""
        seen = self._seen.get(id(other))
        if seen is None or not seen.still(other):
            return None
        if seen.moment < began:
            return seen.anchor
        tensor, module, source = self._made.get(id(other), (None, "", seen))
        if tensor is None or tensor() is not other or source.moment >= began:
            return None
        value = source.tensor()
        if value is None or not source.still(value) or self.calls[module] > 1:
            return None
        return replace(source.anchor, through=module)


def version_of(value: Tensor) -> int:
    """How often a tensor was written into; not counted in inference mode."""
    return 0 if value.is_inference() else value._version


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)
