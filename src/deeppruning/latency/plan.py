"""The latency of any genome of a network, without building it: times of its layers, added up and adjusted.

What lies between the layers (norms, activations, sums) goes with their number and with the values they read
and write; by how much is found on some thin networks that are measured whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deeppruning.errors import InputError
from deeppruning.genome import Population
from deeppruning.graph import ChannelGraph
from deeppruning.latency.cache import LayerTimes
from deeppruning.latency.conditions import Conditions
from deeppruning.latency.layers import Layer, find_layers
from deeppruning.latency.runtimes import Runtime, TorchRuntime, runtime_for
from deeppruning.latency.stopwatch import in_turns, quickest
from deeppruning.latency.surface import ALIGNED, Surface, aligned_levels, measure_surface, odd_levels
from deeppruning.system.device import torch_threads

WHOLE = 16  # thin networks that are measured whole
_FIGURES = 5  # what a latency is put together from, see `_figures`


@dataclass(frozen=True)
class PlannedLayer:
    """A layer with where its times stand."""

    name: str
    surface: int
    free: tuple[bool, bool]
    inputs: int
    outputs: int


@dataclass(frozen=True, eq=False)
class LatencyPlan:
    """Predicts seconds under some conditions for whole populations; travels to workers, kept in a run."""

    conditions: Conditions
    layers: tuple[PlannedLayer, ...]
    surfaces: tuple[tuple[Surface, Surface], ...]  # of aligned widths, of all others
    factors: tuple[float, ...]  # of each of the figures

    def __call__(self, graph: ChannelGraph, population: Population) -> NDArray[np.float64]:
        """Seconds of each genome."""
        return np.asarray(self._figures(graph, population) @ np.array(self.factors))

    def fitted(self, graph: ChannelGraph, population: Population, seconds: Sequence[float]) -> LatencyPlan:
        """The same plan with the factors that explain what genomes were measured to take."""
        figures = self._figures(graph, population)
        return LatencyPlan(
            self.conditions,
            self.layers,
            self.surfaces,
            explain(figures, np.asarray(seconds, dtype=np.float64)),
        )

    def _figures(self, graph: ChannelGraph, population: Population) -> NDArray[np.float64]:
        """(genomes, 5): one, seconds of the layers, how many they are, values written and values read."""
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
        """Plain values; those that are read back are the same."""
        return {
            "conditions": self.conditions.to_table(),
            "layers": [[one.name, one.surface, *one.free, one.inputs, one.outputs] for one in self.layers],
            "surfaces": [[surface.to_table() for surface in pair] for pair in self.surfaces],
            "factors": list(self.factors),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> LatencyPlan:
        """Read back what `to_table` wrote."""
        layers = tuple(
            PlannedLayer(str(name), int(surface), (bool(first), bool(second)), int(inputs), int(outputs))
            for name, surface, first, second, inputs, outputs in table["layers"]
        )
        surfaces = tuple(
            (Surface.from_table(aligned), Surface.from_table(others)) for aligned, others in table["surfaces"]
        )
        factors = tuple(float(factor) for factor in table["factors"])
        if len(factors) != _FIGURES or any(not 0 <= one.surface < len(surfaces) for one in layers):
            raise ValueError("a plan of latency is not whole")
        return cls(Conditions.from_table(table["conditions"]), layers, surfaces, factors)


def plan_latency(graph: ChannelGraph, example_input: Any, conditions: Conditions) -> LatencyPlan:
    """Time the layers of a network at some widths, and some thin networks whole, on this machine."""
    runtime = runtime_for(conditions)
    layers = find_layers(graph, graph.prune(graph.full_genome()).eval(), example_input)
    if not layers:
        raise InputError(
            "this network runs no convolution or linear layer as a module: its latency cannot be planned "
            "with; choose another objective, or a function that measures it"
        )
    with torch_threads(conditions.threads):
        plan = _untested(layers, runtime)
        genomes = sampled_genomes(graph)
        forwards = [runtime.network(graph.prune(genome).eval(), example_input) for genome in genomes]
        return plan.fitted(graph, genomes, in_turns(forwards))


def measure_networks(
    networks: Sequence[nn.Module], example_input: Any, conditions: Conditions, *, turns: int | None = None
) -> list[float]:
    """Seconds of whole networks under these conditions, measured in turns; the networks may be changed."""
    runtime = runtime_for(conditions)
    with torch_threads(conditions.threads):
        return in_turns([runtime.network(network, example_input) for network in networks], turns)


def measure_both_forms(networks: Sequence[nn.Module], example_input: Any) -> list[tuple[float, float]]:
    """Seconds of each network in its deployment form and as it is, in PyTorch, all of them in turns."""
    runtime = TorchRuntime(Conditions())
    with torch_threads(runtime.conditions.threads):
        forwards = [runtime.network(network, example_input) for network in networks]
        forwards += [runtime.as_loaded(network, example_input) for network in networks]
        times = in_turns(forwards)
    return list(zip(times[: len(networks)], times[len(networks) :], strict=True))


def _untested(layers: Sequence[Layer], runtime: Runtime) -> LatencyPlan:
    """The plan in which a network takes as long as its layers."""
    times, nothing = LayerTimes.of(runtime), runtime.nothing()
    called = 0.0 if nothing is None else quickest(nothing)
    kinds = list(dict.fromkeys((layer.shape, layer.extents, layer.free) for layer in layers))
    surfaces = []
    for shape, extents, free in kinds:

        def time(first: int, second: int, shape: Any = shape) -> float:
            even = shape.rounded((first, second))
            return max(0.0, times.get(shape, even, lambda: quickest(runtime.layer(shape, even))) - called)

        aligned, others = (
            measure_surface(extents, free, levels, time) for levels in (aligned_levels, odd_levels)
        )
        surfaces.append((aligned, others))
    times.save()
    planned = tuple(
        PlannedLayer(
            layer.name,
            kinds.index((layer.shape, layer.extents, layer.free)),
            layer.free,
            layer.inputs,
            layer.outputs,
        )
        for layer in layers
    )
    return LatencyPlan(runtime.conditions, planned, tuple(surfaces), (0.0, 1.0, 0.0, 0.0, 0.0))


def sampled_genomes(graph: ChannelGraph, count: int = WHOLE, seed: int = 0) -> Population:
    """The original and thin networks of all sizes, with and without branches, of even and odd widths."""
    rng = np.random.default_rng(seed)
    groups = [group for group in graph.groups if group.prunable]
    found = [graph.full_genome()]
    while len(found) < count:
        genome, share = graph.full_genome(), rng.uniform(0.15, 1.0)
        dropping, multiple = rng.choice([0.0, 0.25, 0.5]), rng.choice([1, ALIGNED, 2 * ALIGNED])
        for group in groups:
            genes = np.array(group.genes)
            if group.removable and rng.random() < dropping:
                genome[genes] = False
                continue
            wanted = len(genes) * share * np.exp(rng.normal(0.0, 0.3)) / multiple
            kept = int(np.clip(round(wanted) * multiple, 1, len(genes)))
            genome[genes[kept:]] = False
        found.append(graph.repair(genome))
    return np.array(found)


def explain(figures: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, ...]:
    """Factors, none below zero, by which figures come nearest to what was measured, as shares of it.

    >>> explain(np.array([[1.0, 2, 0, 0, 0], [1, 4, 0, 0, 0]]), np.array([5.0, 9.0]))
    (1.0, 2.0, 0.0, 0.0, 0.0)
    """
    relative, best = figures / seconds[:, None], np.zeros(figures.shape[1])
    least = np.inf
    # There are so few figures that each set of them can be tried.
    for count in range(1, figures.shape[1] + 1):
        for chosen in map(list, combinations(range(figures.shape[1]), count)):
            factors = np.linalg.lstsq(relative[:, chosen], np.ones(len(seconds)), rcond=None)[0]
            left = float(np.square(relative[:, chosen] @ factors - 1.0).sum())
            if (factors >= 0).all() and left < least - 1e-12:
                best, least = np.zeros(figures.shape[1]), left
                best[chosen] = factors
    return tuple(float(f"{factor:.6g}") for factor in best)
