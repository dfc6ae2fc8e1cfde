"""The proof of depth: every unit that a genome may empty is emptied, with all others that may, and compared.

What stands in for lost layers runs other operations than they did, so the outputs are compared, not the
steps in between. Where something differs, units are added one by one, and those that spoil it are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from deeppruning.graph.atoms import Ids
from deeppruning.graph.cut import cut
from deeppruning.graph.depth.branches import Branches, Unit
from deeppruning.graph.depth.find import Depth, find_units
from deeppruning.graph.depth.flow import FlowRun
from deeppruning.graph.depth.repair import DepthRepair
from deeppruning.graph.difference import difference
from deeppruning.graph.groups import make_groups
from deeppruning.graph.plan import Plan
from deeppruning.graph.silence import SilentRun, kept_atoms
from deeppruning.graph.trace import Record
from deeppruning.graph.twin import seeded

SHARE = 0.7  # of the filters that stay in the other layers while units are emptied
TOLERANCE = {True: 1e-8, False: 1e-3}  # in double precision, in any other


@dataclass(frozen=True)
class DepthFinder:
    """Finds the units of one traced network that may be emptied; works on the copy it is given."""

    model: nn.Module
    plan: Plan
    classes: Ids
    gene_of_class: Ids
    detached: frozenset[str]
    records: Mapping[str, Sequence[Record]]  # mode -> the operations of its run
    inputs: Mapping[str, tuple[tuple[Any, ...], Mapping[str, Any]]]

    def find(self) -> Depth:
        """The units, those that passed every comparison allowed."""
        depth = Depth(self.model, self._units(), [self._branches(mode) for mode in self.records])
        candidates = depth.allowed
        if candidates and not self._equal(depth):
            depth.allowed = frozenset()
            for number in sorted(candidates):
                before = depth.allowed
                depth.allowed = before | {number}
                if not self._equal(depth):
                    depth.allowed = before
        return depth

    def _units(self) -> list[Unit]:
        layers = {layer.name: layer.genes for layer in self.plan.layers}
        return find_units(layers, [group.genes for group in make_groups(self.plan) if group.prunable])

    def _branches(self, mode: str) -> Branches:
        args, kwargs = self.inputs[mode]
        self.model.train(mode == "train")
        with seeded():
            flow = FlowRun(self.model, self.detached).follow(self.model, args, kwargs)
        return Branches(self.model, flow, self.records[mode], self.gene_of_class[self.classes], self._units())

    def _equal(self, depth: Depth) -> bool:
        """Whether the network without all units allowed, thinned elsewhere, gives what silence gives."""
        plan = replace(self.plan, depth=depth)
        drawn = np.random.default_rng(0).random((1, plan.num_genes)) < SHARE
        drawn[:, depth.genes(depth.allowed)] = False
        genome = DepthRepair(plan.repair(), depth)(drawn)[0]
        self.model.eval()
        thin = cut(self.model, plan.recipe(genome))
        args, kwargs = self.inputs["eval"]
        kept = kept_atoms(self.classes, self.gene_of_class, genome)
        try:
            with seeded():
                found = thin(*args, **kwargs)
                for mode, (other, named) in self.inputs.items():
                    thin.train(mode == "train")
                    thin(*other, **named)
        except Exception:
            return False  # some function does not take a tensor without channels
        with seeded():
            silenced = SilentRun(self.model, self.detached, self.records["eval"], kept)
            expected = silenced.run(self.model, args, kwargs)
        double = all(value.dtype == torch.float64 for value in self.model.parameters())
        return difference(found, expected) <= TOLERANCE[double]
