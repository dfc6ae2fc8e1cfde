"""Payloads: what a tensor carries beside its values while the network runs on labels.

Five kinds of payload: `Channels` (one dimension is made of atoms), `Origin` (elements of one parameter),
`Constant` (made in the forward code, the same for every channel), `Statistic` (taken over channels)
and `Fixed` (everything else: it must keep its size, for the reason given).
"""

import contextlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deeppruning.graph.atoms import Atoms, AtomTable, Positions, Site, components


@dataclass(frozen=True)
class Channels:
    """Position i along `dimension` belongs to atom `atoms[i]`; all other dimensions are free of channels."""

    dimension: int
    atoms: Atoms


@dataclass(frozen=True)
class Window:
    """How a view looks at memory: the element at (i, j) lies at offset + i * strides[0] + j * strides[1]."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Origin:
    """The elements of a parameter, moved about.

    Views are described by their window on the parameter, for weights may have millions of elements;
    after other moves `index` holds the flat position of each element. Neither: the parameter as it is.
    """

    name: str
    shape: tuple[int, ...]
    window: Window | None = None
    index: Tensor | None = None

    @property
    def unmoved(self) -> bool:
        """Whether this is the whole parameter in its own shape."""
        return self.window is None and self.index is None

    def flat(self) -> Tensor:
        """For each element its flat position in the parameter."""
        if self.index is not None:
            return self.index
        whole = torch.arange(math.prod(self.shape), dtype=torch.float64)
        if self.window is None:
            return whole.reshape(self.shape)
        return whole.as_strided(self.window.shape, self.window.strides, self.window.offset)

    def ghost(self) -> Tensor:
        """A tensor without data that lies on the parameter as this view does."""
        memory = torch.empty(math.prod(self.shape), device="meta")
        if self.window is None:
            return memory.view(self.shape)
        return memory.as_strided(self.window.shape, self.window.strides, self.window.offset)

    def seen_as(self, ghost: Tensor) -> "Origin":
        """The parameter through another view, given as a ghost of it."""
        window = Window(tuple(ghost.shape), ghost.stride(), int(ghost.storage_offset()))
        same = window == Window(self.shape, Origin(self.name, self.shape).ghost().stride())
        return Origin(self.name, self.shape, None if same else window)

    def viewed_shape(self) -> tuple[int, ...]:
        """The shape of the tensor that these elements make up now."""
        if self.index is not None:
            return tuple(self.index.shape)
        return self.window.shape if self.window is not None else self.shape

    def wide_dimensions(self) -> list[int]:
        """The dimensions of the parameter that have more than one position."""
        return [dimension for dimension, size in enumerate(self.shape) if size > 1]

    def narrowed(self, dims: set[int]) -> "Origin":
        """The first position along these dimensions: the layout of a parameter after a reduction."""
        corner = tuple(slice(0, 1) if d in dims else slice(None) for d in range(len(self.viewed_shape())))
        if self.index is not None:
            return Origin(self.name, self.shape, index=self.index[corner])
        return self.seen_as(self.ghost()[corner])

    def repeated(self, shape: tuple[int, ...]) -> "Origin":
        """The same along dimensions that have one position, repeated to another shape."""
        if self.index is not None:
            return Origin(self.name, self.shape, index=self.index.expand(shape))
        return self.seen_as(self.ghost().expand(shape))

    def repeats(self, dimension: int) -> bool:
        """Whether one position is repeated along this dimension of the tensor."""
        if self.index is not None:
            return bool((self.index == self.index.narrow(dimension, 0, 1)).all())
        return self.window is not None and self.window.strides[dimension] == 0

    def reshaped(self, shape: tuple[int, ...]) -> "Origin":
        """The same elements in another shape."""
        if self.index is None:
            with contextlib.suppress(RuntimeError):  # a reshape that has to copy
                return self.seen_as(self.ghost().view(shape))
        return Origin(self.name, self.shape, index=self.flat().reshape(shape))

    def own_dimension(self, dimension: int) -> tuple[int, Positions] | None:
        """The parameter's own dimension along this dimension of the tensor, and its positions.

        None when there is no single one: the parameter is then no per-channel quantity there.
        """
        if self.unmoved:
            return dimension, np.arange(self.shape[dimension], dtype=np.int64)
        if self.window is not None:
            return self._own_in_window(self.window, dimension)
        moved = np.moveaxis(self.flat().numpy().astype(np.int64), dimension, 0)
        moved = moved.reshape(moved.shape[0], -1)
        for own, size, step in self._steps():
            positions = (moved // step) % size
            if (positions == positions[:, :1]).all() and len(np.unique(positions[:, 0])) > 1:
                return own, positions[:, 0]
        return None

    def _steps(self) -> list[tuple[int, int, int]]:
        """Number, size and step in memory of each of its dimensions that has more than one position."""
        steps = [math.prod(self.shape[own + 1 :]) for own in range(len(self.shape))]
        sizes = enumerate(zip(self.shape, steps, strict=True))
        return [(own, size, step) for own, (size, step) in sizes if size > 1]

    def _own_in_window(self, window: Window, dimension: int) -> tuple[int, Positions] | None:
        """The parameter's own dimension along one of a window on it, and its positions there."""
        stride, length = window.strides[dimension], window.shape[dimension]
        for own, size, step in self._steps():
            along = [
                d for d, s in enumerate(window.strides) if window.shape[d] > 1 and step <= s < step * size
            ]
            start = (window.offset // step) % size
            if along == [dimension] and stride % step == 0 and start + (length - 1) * (stride // step) < size:
                return own, start + np.arange(length, dtype=np.int64) * (stride // step)
        return None


@dataclass(frozen=True)
class Constant:
    """Zeros, ones or noise made in the forward code, in whatever size the code asks for."""


@dataclass(frozen=True)
class Fixed:
    """Data that must keep its size: the network's input, or the result of an unknown operation."""

    reason: str


@dataclass(frozen=True)
class Statistic:
    """A mean or variance over channels; it may norm those same channels, any other use freezes them."""

    dimension: int  # the channels' in the tensor it was taken of
    atoms: Atoms
    reason: str
    sites: frozenset[Site]  # where it was taken
    turned: bool = False  # whether it is an inverse or a negative, to multiply with or to add


Payload = Channels | Origin | Constant | Fixed | Statistic


def spread(payload: Payload, tensor: Tensor, table: AtomTable, site: Site) -> Tensor:
    """The label of every element, as doubles (exact up to 2**53, and every operation accepts them)."""
    if isinstance(payload, Channels):
        shape = [1] * tensor.ndim
        shape[payload.dimension] = -1
        return torch.from_numpy(payload.atoms.astype(np.float64)).reshape(shape).expand(tensor.shape)
    if isinstance(payload, Constant):
        return torch.zeros((), dtype=torch.float64).expand(tensor.shape)
    reason = (
        payload.reason if isinstance(payload, (Fixed, Statistic)) else f"joined with parameter {payload.name}"
    )
    atom = table.issue(site, 1, kind="fixed", layer="")
    table.freeze(atom, reason)
    return torch.full((), float(atom[0]), dtype=torch.float64).expand(tensor.shape)


def gather(labels: Tensor, table: AtomTable, site: Site, layer: str) -> Payload:
    """The payload that these element labels amount to.

    Where labels differ along several dimensions (a view that splits channels into groups), the thin tensor
    can only be a box if one dimension is cut and the positions along the others are tied: the dimension that
    leaves most channels free is cut, or the next best if `table.choices` says so. Positions that
    only hold constants become atoms of their own.
    """
    # Along a dimension of stride 0 all positions are equal: one is enough.
    repeated = [size > 1 and stride == 0 for size, stride in zip(labels.shape, labels.stride(), strict=True)]
    corner = labels[tuple(slice(0, 1) if once else slice(None) for once in repeated)]
    array = corner.numpy().astype(np.int64)
    if not array.size or not array.any():
        return Constant()
    if not array.ndim:  # there is no dimension left to cut
        reason = "a single value is taken of it"
        table.freeze(array.reshape(1), reason)
        return Fixed(reason)
    ranked = _free_dimensions(array)
    table.candidates[site] = len(ranked)
    dimension = ranked[min(table.choices.get(site, 0), len(ranked) - 1)]
    atoms = array.max(axis=tuple(i for i in range(array.ndim) if i != dimension))
    first, second = _meeting(array, dimension)
    if len(first):
        table.tie(first, second)
    blank = atoms == 0
    if blank.any():
        count = int(blank.sum())
        atoms[blank] = table.issue((*site, "constant", count), count, kind="constant", layer=layer)
    return Channels(dimension, np.repeat(atoms, labels.shape[dimension]) if repeated[dimension] else atoms)


def _free_dimensions(array: Atoms) -> list[int]:
    """The dimensions along which channels may run, best first; the only one that varies as a rule."""
    varying = [
        dimension
        for dimension, size in enumerate(array.shape)
        if size > 1 and (array != array.take([0], axis=dimension)).any()
    ]
    # Zero padding of a map makes labels differ from 0 along its spatial dimensions; that is no channel.
    if len(varying) > 1:
        filled = [dimension for dimension in varying if _differ_beyond_zeros(array, dimension)]
        varying = filled or varying
    if len(varying) > 1:
        return sorted(
            varying, key=lambda dimension: (-_classes_left(array, dimension), -array.shape[dimension])
        )
    if varying:
        return varying
    preferred = [1, *range(array.ndim)] if array.ndim > 1 else [0]
    return [next((dimension for dimension in preferred if array.shape[dimension] == 1), preferred[0])]


def _differ_beyond_zeros(array: Atoms, dimension: int) -> bool:
    """Whether labels differ along a dimension otherwise than by padding zeros."""
    highest = array.max(axis=dimension, keepdims=True)
    return bool(((array != highest) & (array != 0)).any())


def _meeting(array: Atoms, dimension: int) -> tuple[Atoms, Atoms]:
    """The pairs of labels that share a position along the dimension."""
    wide = np.broadcast_to(
        array.max(axis=tuple(i for i in range(array.ndim) if i != dimension), keepdims=True), array.shape
    )
    apart = (array != wide) & (array != 0)
    pairs = np.unique(np.stack([array[apart], wide[apart]]), axis=1)
    return pairs[0], pairs[1]


def _classes_left(array: Atoms, dimension: int) -> int:
    """How many channels stay independent when this dimension is cut."""
    atoms = np.unique(array[array != 0])
    first, second = (np.searchsorted(atoms, side) for side in _meeting(array, dimension))
    return len(np.unique(components(len(atoms), first, second)))
