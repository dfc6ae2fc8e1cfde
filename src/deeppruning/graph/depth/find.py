"""Which units of a network may be emptied, what goes with them, and what is left to pay for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from deeppruning.graph.depth.branches import Branches, Emptied, Forms, Settled, State
from deeppruning.graph.plan import Bits, Genes


class Depth:
    """Empties units of a network; `allowed` are those a genome may ask for.

    A branch may run in training only (an auxiliary classifier), so all modes count: a unit rests when it
    does in each, and a submodule is replaced in all of them alike.
    """

    def __init__(self, model: nn.Module, units: Sequence[Genes], modes: Sequence[Branches]) -> None:
        self.units = list(units)
        self.modes = modes
        self.several = _several_names(model)
        self.parameters = {
            name: tuple(key for key, tensor in module._parameters.items() if tensor is not None)
            for name, module in model.named_modules()
        }
        # What rests in the original (a branch that is computed for nobody) is left to rest as it is.
        self.idle = frozenset.intersection(*(mode.usual.resting() for mode in modes))
        self._settled: dict[Emptied, Settled] = {}
        numbers = range(len(self.units))
        self.allowed: Emptied = frozenset(n for n in numbers if self.settle(frozenset({n})).sound)

    def settle(self, emptied: Emptied) -> Settled:
        """What becomes of the network without these units."""
        if emptied not in self._settled:
            self._settled[emptied] = self._settle(emptied)
        return self._settled[emptied]

    def _settle(self, emptied: Emptied) -> Settled:
        while True:
            states = [State(mode, emptied) for mode in self.modes]
            resting = frozenset.intersection(*(state.resting() for state in states))
            resting = (resting - self.idle) | emptied
            if resting == emptied:
                break
            emptied = resting
        forms = _merged([state.forms() for state in states])
        if forms is None or forms.replaced & self.several:
            return Settled(emptied, Forms(), sound=False)
        speaks = all(state.speaks() for state in states)
        return Settled(emptied, self._with_parameters(forms), sound=speaks)

    def gone(self, genome: Bits) -> Emptied:
        """The units of which a genome keeps nothing."""
        return frozenset(n for n, unit in enumerate(self.units) if not genome[unit].any())

    def close(self, genome: Bits) -> Emptied:
        """The units that go under this genome; the lowest are given back where it would fall silent."""
        return self.together(self.gone(genome) & self.allowed)

    def together(self, units: Emptied, first: Emptied = frozenset()) -> Emptied:
        """All that goes when as many of these units go as may at once, the first ones before others."""
        settled = self.settle(units)
        if settled.sound:
            return settled.units
        kept: Emptied = frozenset()
        for number in (*sorted(first, reverse=True), *sorted(units - first, reverse=True)):
            if self.settle(kept | {number}).sound:
                kept |= {number}
        return self.settle(kept).units

    def branches(self) -> dict[frozenset[int], tuple[str, ...]]:
        """Genes of each unit that may be emptied -> the submodules that disappear with it."""
        return {
            frozenset(self.units[number].tolist()): tuple(
                sorted(self.settle(frozenset({number})).forms.replaced)
            )
            for number in self.allowed
        }

    def genes(self, units: Iterable[int]) -> Genes:
        """The genes of these units."""
        found = [self.units[number] for number in units]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _with_parameters(self, forms: Forms) -> Forms:
        hollow = [f"{name}.{key}" for name in forms.hollow for key in self.parameters[name]]
        spare = [f"{name}.{key}" for name in forms.answers for key in self.parameters[name] if key != "bias"]
        biased = [
            feeder or name for name, feeder in forms.answers.items() if "bias" not in self.parameters[name]
        ]
        return replace(forms, dropped=(*hollow, *spare), biased=tuple(biased))


def find_units(layers: Iterable[Genes], groups: Iterable[tuple[int, ...]]) -> list[Genes]:
    """Groups of genes that make up all filters of the layers they are in."""
    held = [set(genes.tolist()) for genes in layers]
    return [
        np.array(sorted(group), dtype=np.int64)
        for group in groups
        if all(genes == set(group) for genes in held if genes & set(group))
    ]


def _merged(forms: Sequence[Forms]) -> Forms | None:
    """The forms of all modes together, None where they contradict each other.

    A submodule that is still at work in one of its calls, or in one mode, runs on in all of them.
    """
    busy = frozenset().union(*(each.busy for each in forms))
    hollow = frozenset().union(*(each.hollow for each in forms)) - busy
    answers = {name: feeder for each in forms for name, feeder in each.answers.items()}
    alike = all(
        each.answers.get(name, feeder) == feeder for each in forms for name, feeder in answers.items()
    )
    if not alike or answers.keys() & (busy | hollow):
        return None
    spread = frozenset().union(*(each.spread for each in forms))
    return Forms(hollow, answers, spread, busy)


def _several_names(model: nn.Module) -> frozenset[str]:
    """Submodules that are registered more than once: replacing one name would leave the other."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    return frozenset(name for listed in names.values() if len(listed) > 1 for name in listed)
