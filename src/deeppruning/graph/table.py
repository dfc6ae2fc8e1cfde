"""The channel graph as a table for people: each layer, its filters, prunable or the reason why not."""

from collections.abc import Sequence

import numpy as np

from deeppruning.graph.groups import Group
from deeppruning.graph.plan import Plan


def render(
    name: str, plan: Plan, groups: Sequence[Group], flops: int, params: int, notes: Sequence[str]
) -> str:
    """One line a layer, headed by totals."""
    place = {gene: number for number, group in enumerate(groups) for gene in group.genes}
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
        own = sorted({place[gene] for gene in layer.genes[layer.genes >= 0].tolist()})
        kernel = "x".join(map(str, layer.kernel)) or "linear"
        prunable = int(np.sum(layer.genes >= 0))
        strings = " ".join(dict.fromkeys(groups[number].string for number in own))
        numbers = _shortened([str(number) for number in own])
        why = "; ".join(layer.reasons[:2]) if prunable < len(layer.genes) else ""
        rows.append((layer.name, kernel, str(len(layer.genes)), str(prunable), numbers, strings, why))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)]
        lines.append(("  ".join(cells) + "  " + row[6]).rstrip())
    lines += _branches(groups)
    lines += [f"note: {note}" for note in notes]
    return "\n".join(lines)


def _branches(groups: Sequence[Group]) -> list[str]:
    """Which groups may lose all their filters, and what disappears with them."""
    removable = [(number, group) for number, group in enumerate(groups) if group.removable]
    if not removable:
        return []
    return [
        "",
        f"{len(removable)} groups may lose all filters:",
        *(f"group {number}: {' '.join(group.branch)} would go" for number, group in removable),
    ]


def _shortened(numbers: list[str]) -> str:
    return " ".join(numbers) if len(numbers) < 4 else f"{numbers[0]} {numbers[1]} .. {numbers[-1]}"
