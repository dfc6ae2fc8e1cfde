"""What each gene stands for, in words: groups of layers whose filters go together, and their string.

The paper writes a genome as strings: one for a plain network; for a ResNet one of first layers and
one of second layers (tied by the sums they feed); for a DenseNet one of 1x1 bottlenecks and one of
3x3 layers. Any other network is described by the same three cases.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deeppruning.graph.plan import Plan
from deeppruning.graph.repair import multiple_for

PLAIN, FIRST, SECOND, BOTTLENECK = "plain", "first", "second", "bottleneck"


@dataclass(frozen=True)
class Group:
    """Layers whose filters share genes; or, with no genes, a layer that keeps all and the reason."""

    layers: tuple[str, ...]
    genes: tuple[int, ...]
    string: str
    filters: int  # filters of all its layers that these genes decide, or that are frozen
    reasons: tuple[str, ...] = ()
    multiple: int = 1  # of its genes that stay, so that every layer keeps the multiple of filters it should
    branch: tuple[str, ...] = ()  # submodules that disappear when all its filters go; none: some must stay

    @property
    def removable(self) -> bool:
        """Whether all its filters may go."""
        return bool(self.branch)

    @property
    def prunable(self) -> bool:
        """Whether any gene decides about it."""
        return bool(self.genes)


def make_groups(plan: Plan) -> list[Group]:
    """All groups in the order of the genes; layers (or parts of them) that are frozen come last."""
    members: list[dict[str, int]] = [{} for _ in range(plan.num_genes)]
    for layer in plan.layers:
        for gene in layer.genes[layer.genes >= 0].tolist():
            members[gene][layer.name] = members[gene].get(layer.name, 0) + 1
    by_layers: dict[tuple[str, ...], list[int]] = {}
    for gene, filters in enumerate(members):
        by_layers.setdefault(tuple(filters), []).append(gene)
    strings = _strings(plan, list(by_layers))
    branches = plan.depth.branches() if plan.depth else {}
    groups = [
        Group(
            layers,
            tuple(genes),
            strings[layers],
            sum(sum(members[gene].values()) for gene in genes),
            multiple=_multiple(plan, members[genes[0]]),
            branch=branches.get(frozenset(genes), ()),
        )
        for layers, genes in by_layers.items()
    ]
    for layer in plan.layers:
        frozen = int(np.sum(layer.genes < 0))
        if frozen:
            groups.append(Group((layer.name,), (), "", frozen, layer.reasons))
    return groups


def _multiple(plan: Plan, filters: Mapping[str, int]) -> int:
    """How many genes make a multiple of filters in every layer; one decides about so many of each."""
    widths = {layer.name: len(layer.genes) for layer in plan.layers}
    wanted = {name: multiple_for(widths[name], plan.round_to) for name in filters}
    return math.lcm(*(wanted[name] // math.gcd(wanted[name], each) for name, each in filters.items()))


def _strings(plan: Plan, sets: list[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The string each set of layers belongs to."""
    kernels = {layer.name: layer.kernel for layer in plan.layers}
    if any(len(layers) > 1 for layers in sets):
        return {layers: SECOND if len(layers) > 1 else FIRST for layers in sets}
    pointwise = {layers: all(extent == 1 for extent in kernels[layers[0]]) for layers in sets}
    if any(pointwise.values()) and not all(pointwise.values()):
        return {
            layers: BOTTLENECK if pointwise[layers] else "x".join(map(str, kernels[layers[0]]))
            for layers in sets
        }
    return dict.fromkeys(sets, PLAIN)
