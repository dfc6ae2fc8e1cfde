"""The latency of any genome of a network, without building it: the sum of its layer times, corrected.

The time between the layers (norms, activations, sums) depends on the number of layers and on the values they
read and write; these factors are fitted to measurements of some whole thin networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deeppruning.errors import InputError
from deeppruning.genome import Population
from deeppruning.graph import ChannelGraph
from deeppruning.latency.layers import Layer, LayerShape, find_layers
from deeppruning.latency.runtimes import Conditions, Runtime, TorchRuntime, runtime_for
from deeppruning.latency.timing import LayerTimes, in_turns, quickest
from deeppruning.system.device import torch_threads

Widths = NDArray[np.float64]

WHOLE = 16  # thin networks that are measured whole
ALIGNED = 4  # multiples of it fill vector units and allow faster memory layouts
_SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)
_ODD_SHARES = (1 / 4, 1 / 2, 1.0)
_LAYERS_ONLY = (0.0, 1.0, 0.0, 0.0, 0.0)  # factors of the features, see `LatencyPlan._latency_features`


class Surface(NamedTuple):
    """Seconds of a layer at a grid of both extents of its weight, interpolated in between.

    >>> surface = Surface((4, 8), (2,), ((1.0,), (3.0,)))
    >>> surface(np.array([4.0, 6.0, 8.0]), np.array([2.0, 2.0, 2.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    firsts: tuple[int, ...]
    seconds: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]

    def __call__(self, first: Widths, second: Widths) -> Widths:
        """Interpolated linearly between the points, and extrapolated beyond them."""
        grid = np.array(self.values)
        below, above, part = _neighbouring_levels(np.array(self.firsts), first)
        left, right, share = _neighbouring_levels(np.array(self.seconds), second)
        at_below = (1 - share) * grid[below, left] + share * grid[below, right]
        at_above = (1 - share) * grid[above, left] + share * grid[above, right]
        return np.asarray(np.maximum((1 - part) * at_below + part * at_above, 0.0))


def _neighbouring_levels(levels: NDArray[np.int64], widths: Widths) -> tuple[Any, Any, Widths]:
    """The levels on both sides of each width, and its relative position between them."""
    if len(levels) == 1:
        nothing = np.zeros(np.shape(widths), dtype=np.int64)
        return nothing, nothing, np.zeros(np.shape(widths))
    below = np.clip(np.searchsorted(levels, widths, side="right") - 1, 0, len(levels) - 2)
    part = (widths - levels[below]) / (levels[below + 1] - levels[below])
    return below, below + 1, part


def aligned_levels(extent: int) -> list[int]:
    """Some multiples of 4 up to an extent, and the extent itself.

    >>> aligned_levels(64), aligned_levels(10)
    ([4, 8, 16, 24, 32, 48, 64], [4, 8, 10])
    """
    levels = {max(ALIGNED, ALIGNED * round(share * extent / ALIGNED)) for share in (0.0, *_SHARES)}
    return sorted({min(level, extent) for level in levels} | {extent})


def odd_levels(extent: int) -> list[int]:
    """Some widths up to an extent that are no multiples of 4, unless there is no other.

    >>> odd_levels(64), odd_levels(4)
    ([1, 15, 31, 63], [1, 3])
    """
    levels = {ALIGNED * round(share * extent / ALIGNED) - 1 for share in _ODD_SHARES}
    return sorted({1} | {min(level, extent) for level in levels if level >= 1})


class PlannedLayer(NamedTuple):
    """A layer and the number of its pair of surfaces."""

    name: str
    surface: int
    free: tuple[bool, bool]
    inputs: int
    outputs: int


@dataclass(frozen=True, eq=False)
class LatencyPlan:
    """Predicts seconds under some conditions for whole populations; sent to workers and kept in a run."""

    conditions: Conditions
    layers: tuple[PlannedLayer, ...]
    surfaces: tuple[tuple[Surface, Surface], ...]  # of aligned widths, of all others
    factors: tuple[float, ...]  # of each feature

    def __call__(self, graph: ChannelGraph, population: Population) -> NDArray[np.float64]:
        """Seconds of each genome."""
        return np.asarray(self._latency_features(graph, population) @ np.array(self.factors))

    def _latency_features(self, graph: ChannelGraph, population: Population) -> NDArray[np.float64]:
        """(genomes, 5): one, seconds of the layers, number of layers, values written and values read."""
        extents = graph.extents([layer.name for layer in self.layers], population)
        there = extents[..., 0] > 0
        free = np.array([layer.free for layer in self.layers])
        odd = ((extents % ALIGNED != 0) & free).any(axis=2)
        seconds = np.zeros(there.shape)
        for number, (aligned, others) in enumerate(self.surfaces):
            places = [place for place, layer in enumerate(self.layers) if layer.surface == number]
            first, second = extents[:, places, 0], extents[:, places, 1]
            seconds[:, places] = np.where(odd[:, places], others(first, second), aligned(first, second))
        written = extents[..., 0] * np.array([layer.outputs for layer in self.layers])
        read = extents[..., 1] * np.array([layer.inputs for layer in self.layers])
        columns = (np.where(there, seconds, 0.0), there, written, np.where(there, read, 0.0))
        return np.column_stack([np.ones(len(there)), *(column.sum(axis=1) for column in columns)])

    def to_table(self) -> dict[str, Any]:
        """Plain values that `from_table` reads back."""
        layers = [
            [layer.name, layer.surface, *layer.free, layer.inputs, layer.outputs] for layer in self.layers
        ]
        return {**asdict(self), "layers": layers}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> LatencyPlan:
        """Read back what `to_table` wrote."""
        asked = table["conditions"]
        conditions = Conditions(
            str(asked["runtime"]), int(asked["batch"]), int(asked["threads"]), str(asked["device"])
        )
        layers = tuple(
            PlannedLayer(str(name), int(surface), (bool(first), bool(second)), int(inputs), int(outputs))
            for name, surface, first, second, inputs, outputs in table["layers"]
        )
        aligned, others = (
            [
                Surface(
                    tuple(map(int, firsts)),
                    tuple(map(int, seconds)),
                    tuple(tuple(map(float, row)) for row in values),
                )
                for firsts, seconds, values in column
            ]
            for column in zip(*table["surfaces"], strict=True)
        )
        surfaces = tuple(zip(aligned, others, strict=True))
        factors = tuple(float(factor) for factor in table["factors"])
        if len(factors) != len(_LAYERS_ONLY) or any(
            not 0 <= layer.surface < len(surfaces) for layer in layers
        ):
            raise ValueError("a latency plan is incomplete")
        return cls(conditions, layers, surfaces, factors)


def plan_latency(graph: ChannelGraph, example_input: Any, conditions: Conditions) -> LatencyPlan:
    """Time the layers of a network at some widths, and some thin networks whole, on this machine."""
    runtime = runtime_for(conditions)
    layers = find_layers(graph, graph.prune(graph.full_genome()).eval(), example_input)
    if not layers:
        raise InputError(
            "this network runs no convolution or linear layer as a module, so its latency cannot be "
            "predicted; choose another objective, or a function that measures it"
        )
    with torch_threads(conditions.threads):
        plan = _plan_of_layers(layers, runtime)
        genomes = sampled_genomes(graph)
        forwards = [runtime.network(graph.prune(genome).eval(), example_input) for genome in genomes]
        seconds = np.array(in_turns(forwards, on_cpu=runtime.on_cpu))
    return replace(plan, factors=explain(plan._latency_features(graph, genomes), seconds))


def measure_networks(
    networks: Sequence[nn.Module], example_input: Any, conditions: Conditions, *, turns: int | None = None
) -> list[float]:
    """Seconds of whole networks under these conditions, measured in turns; the networks may be changed."""
    runtime = runtime_for(conditions)
    with torch_threads(conditions.threads):
        forwards = [runtime.network(network, example_input) for network in networks]
        return in_turns(forwards, turns, on_cpu=runtime.on_cpu)


def measure_both_forms(networks: Sequence[nn.Module], example_input: Any) -> list[tuple[float, float]]:
    """Seconds of each network in its deployment form and as it is, in PyTorch, all of them in turns."""
    runtime = TorchRuntime(Conditions())
    with torch_threads(runtime.conditions.threads):
        forwards = [runtime.network(network, example_input) for network in networks]
        forwards += [runtime.as_loaded(network, example_input) for network in networks]
        times = in_turns(forwards)
    return list(zip(times[: len(networks)], times[len(networks) :], strict=True))


def _plan_of_layers(layers: Sequence[Layer], runtime: Runtime) -> LatencyPlan:
    """The plan that predicts the sum of the layer times."""
    times, nothing = LayerTimes.of(runtime), runtime.nothing()
    overhead = 0.0 if nothing is None else quickest(nothing, on_cpu=runtime.on_cpu)
    kinds = list(dict.fromkeys((layer.shape, layer.extents, layer.free) for layer in layers))
    surfaces = []

    def measured(shape: LayerShape, extents: tuple[int, int]) -> float:
        return quickest(runtime.layer(shape, extents), on_cpu=runtime.on_cpu)

    for shape, extents, free in kinds:

        def time(first: int, second: int, shape: Any = shape) -> float:
            even = shape.rounded((first, second))
            return max(0.0, times.get(shape, even, lambda: measured(shape, even)) - overhead)

        aligned, others = (
            _measured_surface(extents, free, levels, time) for levels in (aligned_levels, odd_levels)
        )
        surfaces.append((aligned, others))
    times.save()
    planned = [
        PlannedLayer(
            layer.name,
            kinds.index((layer.shape, layer.extents, layer.free)),
            layer.free,
            layer.inputs,
            layer.outputs,
        )
        for layer in layers
    ]
    return LatencyPlan(runtime.conditions, tuple(planned), tuple(surfaces), _LAYERS_ONLY)


def _measured_surface(
    extents: tuple[int, int],
    free: tuple[bool, bool],
    levels: Callable[[int], list[int]],
    time: Callable[[int, int], float],
) -> Surface:
    """Measure all pairs of levels; an extent that no cut can change has one level."""
    firsts, seconds = (
        levels(extent) if is_free else [extent] for extent, is_free in zip(extents, free, strict=True)
    )
    values = tuple(tuple(time(first, second) for second in seconds) for first in firsts)
    return Surface(tuple(firsts), tuple(seconds), values)


def sampled_genomes(graph: ChannelGraph, count: int = WHOLE, seed: int = 0) -> Population:
    """The original and thin networks of all sizes, with and without branches, of even and odd widths."""
    rng = np.random.default_rng(seed)
    groups = [group for group in graph.groups if group.prunable]
    genomes = [graph.full_genome()]
    while len(genomes) < count:
        genome, share = graph.full_genome(), rng.uniform(0.15, 1.0)
        dropping, multiple = rng.choice([0.0, 0.25, 0.5]), rng.choice([1, ALIGNED, 2 * ALIGNED])
        for group in groups:
            genes = np.array(group.genes)
            if group.removable and rng.random() < dropping:
                genome[genes] = False
                continue
            multiples = len(genes) * share * np.exp(rng.normal(0.0, 0.3)) / multiple
            width = int(np.clip(round(multiples) * multiple, 1, len(genes)))
            genome[genes[width:]] = False
        genomes.append(graph.repair(genome))
    return np.array(genomes)


def explain(features: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, ...]:
    """Non-negative factors of the features that fit the seconds best, by relative error.

    >>> explain(np.array([[1.0, 2, 0, 0, 0], [1, 4, 0, 0, 0]]), np.array([5.0, 9.0]))
    (1.0, 2.0, 0.0, 0.0, 0.0)
    """
    relative, best = features / seconds[:, None], np.zeros(features.shape[1])
    least = np.inf
    # There are so few features that each set of them can be tried.
    for count in range(1, features.shape[1] + 1):
        for chosen in map(list, combinations(range(features.shape[1]), count)):
            factors = np.linalg.lstsq(relative[:, chosen], np.ones(len(seconds)), rcond=None)[0]
            left = float(np.square(relative[:, chosen] @ factors - 1.0).sum())
            if (factors >= 0).all() and left < least - 1e-12:
                best, least = np.zeros(features.shape[1]), left
                best[chosen] = factors
    return tuple(float(f"{factor:.6g}") for factor in best)
