"""A comparison in words: a line when a method is done, and the table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deeppruning.amounts import duration, percent

if TYPE_CHECKING:
    from deeppruning.comparison.events import MethodDone
    from deeppruning.comparison.results import Comparison, Mean


def method_line(event: MethodDone) -> str:
    """What a method's networks came to, and how far the comparison is."""
    networks = ", ".join(
        f"{row.target} {_percent(row.error_before, 1)} -> {_percent(row.error_after, 2, ' %')}"
        for row in event.rows
    )
    spent = sum(row.select_seconds + row.finetune_seconds for row in event.rows)
    return f"{event.done:3}/{event.steps}  {event.method}, seed {event.seed}: {networks}  ({duration(spent)})"


def comparison_text(comparison: Comparison) -> str:
    """All methods at every target as a table, the most accurate first, and the searches below."""
    wide = max([18, *(len(row.method) for row in comparison.rows)])
    lines = [f"original: {percent(comparison.original_error)} test error"]
    means = comparison.means()
    for target in comparison.targets:
        share = target.flops / comparison.original_flops
        lines += ["", f"{target.name}: {percent(share, 1)} of the FLOPs asked for"]
        lines.append(
            f"{'method':{wide}} {'cut only':>9} {'fine-tuned':>16} {'FLOPs':>8} {'parameters':>11} "
            f"{'time':>9}  kind"
        )
        lines += [_mean_line(comparison, mean, wide) for mean in means if mean.target == target.name]
    if comparison.searches:
        head = f"{'seed':>5} {'evaluations':>12} {'hypervolume':>12} {'time':>9}"
        lines += ["", f"{'search':{wide}} {head}  judged by"]
        for search in comparison.searches:
            lines.append(
                f"{search.method:{wide}} {search.seed:5} {search.evaluations:12} {search.hypervolume:12.4f} "
                f"{duration(search.seconds):>9}  {search.evaluation}".rstrip()
            )
    return "\n".join(lines)


def _mean_line(comparison: Comparison, mean: Mean, wide: int) -> str:
    spread = "" if mean.error_spread is None else f" ± {100 * mean.error_spread:.2f}"
    return (
        f"{mean.method:{wide}} {_percent(mean.error_before, 2, ' %'):>9} "
        f"{_percent(mean.error_after, 2, f'{spread} %'):>16} "
        f"{100 * mean.flops / comparison.original_flops:6.1f} % {mean.params:11,.0f} "
        f"{duration(mean.select_seconds + mean.finetune_seconds):>9}  "
        f"{comparison.kinds.get(mean.method, '')}".rstrip()
    )


def _percent(error: float | None, digits: int, unit: str = "") -> str:
    return "failed" if error is None else f"{100 * error:.{digits}f}{unit}"
