"""The proof of depth: every unit that a genome may empty is emptied, with all others that may, and compared.

The modules that replace lost layers run other operations, so the outputs are compared, not the steps in
between. Where something differs, units are added one by one, and those that fail are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.depth import Branches, Depth, Emptied, find_units
from deeppruning.graph.groups import make_groups
from deeppruning.graph.proof.difference import difference, tolerance_for
from deeppruning.graph.proof.masking import MaskedRun, kept_atoms
from deeppruning.graph.proof.twin import Scene, seeded
from deeppruning.graph.proof.verify import Built
from deeppruning.graph.repair import DepthRepair, filter_repair
from deeppruning.graph.trace.flow import FlowRun
from deeppruning.graph.trace.follow import Follower
from deeppruning.graph.trace.tracer import Trace

SHARE = 0.7  # of the filters that stay in the other layers while units are emptied


@dataclass(frozen=True)
class DepthFinder:
    """Finds the units of one traced network that may be emptied."""

    built: Built
    scenes: Mapping[str, tuple[Scene, Trace]]  # mode -> what is run, and how it ran
    compared: dict[bytes, bool] = field(default_factory=dict)  # genome -> whether its cut was right

    def find(self) -> Depth:
        """The units, with those allowed that passed every comparison."""
        plan = self.built.plan
        groups = [group.genes for group in make_groups(plan) if group.prunable]
        units = find_units([layer.genes for layer in plan.layers], groups)
        modes = [self._branches(*each, units) for each in self.scenes.values()]
        depth = Depth(self.scenes["eval"][0].model, units, modes)
        candidates = depth.allowed
        if not self._proven(depth, candidates):
            depth.allowed = frozenset()
            for number in sorted(candidates):
                before = depth.allowed
                depth.allowed = before | {number}
                if not self._proven(depth, frozenset({number})):
                    depth.allowed = before
        return depth

    def _proven(self, depth: Depth, units: Emptied) -> bool:
        """Whether the network is right without these units, each removed with all others that may go too.

        Not all can go at once: some must stay for the outputs to depend on the input. These go in turns.
        """
        while units:
            gone = depth.together(depth.allowed, first=units)
            if not self._equal(depth, gone):
                return False
            units -= gone
        return True

    def _branches(self, scene: Scene, trace: Trace, units: Sequence[Genes]) -> Branches:
        """The run of one mode as a graph on which units can be emptied."""
        model = scene.copy()
        with seeded():
            run = FlowRun(model, self.built.detached, by_shapes=trace.by_shapes)
            flow = run.follow(model, scene.args, scene.kwargs)
        return Branches(model, flow, trace.records, self.built.genes, units)

    def _equal(self, depth: Depth, gone: Emptied) -> bool:
        """Whether the network without these units, thinned elsewhere, equals the masked one."""
        plan = replace(self.built.plan, depth=depth)
        drawn = np.random.default_rng(0).random((1, plan.num_genes)) < SHARE
        for number in depth.allowed:
            drawn[:, depth.units[number][:1]] = True  # not gone by chance
        drawn[:, depth.genes(gone)] = False
        genome = DepthRepair(filter_repair(plan), depth)(drawn)[0]
        key = genome.tobytes()  # which alone decides about the cut, whatever else is allowed by now
        if key not in self.compared:
            self.compared[key] = self._compare(genome, plan.recipe(genome))
        return self.compared[key]

    def _compare(self, genome: Bits, recipe: Recipe) -> bool:
        """Whether the network without some units equals the masked one."""
        try:
            # Training mode has only to run: its random masks depend on sizes.
            outputs = {mode: self._run(scene, recipe, mode) for mode, (scene, _) in self.scenes.items()}
        except Exception:
            return False  # some function does not accept a tensor without channels
        scene, trace = self.scenes["eval"]
        full = scene.copy()
        masked = MaskedRun(full, self.built.detached, trace.records, kept_atoms(self.built.genes, genome))
        masked.replayed = self.built.numbers
        with seeded():
            expected = masked.run(full, scene.args, scene.kwargs)
        return difference(outputs["eval"], expected)[0] <= tolerance_for(masked.coarsest)

    def _run(self, scene: Scene, recipe: Recipe, mode: str) -> Any:
        """The outputs of the network after this cut."""
        with seeded(fused=True):  # as it will be used: what reads the weights of a layer must find them
            thin = cut(scene.copy(), recipe)
            follower = Follower(thin)
            follower.replayed = self.built.numbers if mode == "eval" else ()
            return follower.run(thin, scene.args, scene.kwargs)
