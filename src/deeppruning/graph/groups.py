"""Groups of filters that are removed together, the paper's strings they belong to, and a table of them.

The paper writes a genome as strings: one for a plain network; for a ResNet one of first layers and
one of second layers (tied by the sums they feed); for a DenseNet one of 1x1 bottlenecks and one of
3x3 layers. Any other network is described by the same three cases.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deeppruning.graph.plan import Plan
from deeppruning.graph.repair import multiple_for

PLAIN, FIRST, SECOND, BOTTLENECK = "plain", "first", "second", "bottleneck"


@dataclass(frozen=True)
class Group:
    """Layers that share genes for their filters; or, without genes, a layer that keeps all and the reason."""

    layers: tuple[str, ...]
    genes: tuple[int, ...]
    string: str
    filters: int  # filters of all its layers that these genes decide, or that are frozen
    reasons: tuple[str, ...] = ()
    multiple: int = 1  # of genes to keep, so that every layer keeps the required multiple of filters
    branch: tuple[str, ...] = ()  # submodules that disappear when all filters go; empty: some must stay

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
    """How many genes make a multiple of filters in every layer; one gene decides `filters` of each."""
    widths = {layer.name: len(layer.genes) for layer in plan.layers}
    multiples = {name: multiple_for(widths[name], plan.round_to) for name in filters}
    return math.lcm(*(multiples[name] // math.gcd(multiples[name], each) for name, each in filters.items()))


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


def render(
    name: str, plan: Plan, groups: Sequence[Group], flops: int, params: int, notes: Sequence[str]
) -> str:
    """A table for people: one line per layer with its filters, prunable or the reason why not."""
    group_of = {gene: number for number, group in enumerate(groups) for gene in group.genes}
    filters = sum(len(layer.genes) for layer in plan.layers)
    free = sum(int(np.sum(layer.genes >= 0)) for layer in plan.layers)
    share = 100 * free / filters if filters else 0.0
    lines = [
        f"ChannelGraph of {name}: {plan.num_genes} genes decide {free} of {filters} filters ({share:.1f} %)",
        f"{flops:,} multiply-adds, {params:,} parameters",
        "",
    ]
    rows = [("layer", "kernel", "filters", "prunable", "group", "string", "")]
    for layer in plan.layers:
        own = sorted({group_of[gene] for gene in layer.genes[layer.genes >= 0].tolist()})
        kernel = "x".join(map(str, layer.kernel)) or "linear"
        prunable = int(np.sum(layer.genes >= 0))
        strings = " ".join(dict.fromkeys(groups[number].string for number in own))
        numbers = " ".join(map(str, own)) if len(own) < 4 else f"{own[0]} {own[1]} .. {own[-1]}"
        why = "; ".join(layer.reasons[:2]) if prunable < len(layer.genes) else ""
        rows.append((layer.name, kernel, str(len(layer.genes)), str(prunable), numbers, strings, why))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)]
        lines.append(("  ".join(cells) + "  " + row[6]).rstrip())
    removable = [(number, group) for number, group in enumerate(groups) if group.removable]
    if removable:
        lines += ["", f"{len(removable)} groups may lose all filters:"]
        lines += [f"group {number}: {' '.join(group.branch)} would go" for number, group in removable]
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])
