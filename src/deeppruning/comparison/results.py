"""The results of a comparison: a row per network, means over seeds, and how well each search searched."""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.amounts import aligned, duration, percent
from deeppruning.comparison.problem import Target
from deeppruning.errors import DAMAGE, RunError
from deeppruning.searching.events import EpochDone, FinetuneDiverged, FinetunePlanned, Remark, Stage

OURS = "deeppruninges"  # the picks of the run that the comparison is matched to


@dataclass(frozen=True)
class Row:
    """One network of one method; errors are on the test set, None if it failed."""

    method: str
    seed: int
    target: str
    flops: int
    params: int
    error_before: float | None  # cut, not yet fine-tuned
    error_after: float | None
    select_seconds: float  # to find it, summed over workers; a method's time is shared among its networks
    finetune_seconds: float


@dataclass(frozen=True)
class Search:
    """The hypervolume of all candidates of a search; comparable between searches of the same evaluation."""

    method: str
    seed: int
    evaluations: int
    hypervolume: float
    evaluation: str = ""  # how its candidates were evaluated
    seconds: float = 0.0  # in all, summed over workers


@dataclass(frozen=True)
class Mean:
    """A method at one target, over the seeds; the spread is a standard deviation, None for a single seed.

    Errors are the means of the networks that have one, None if none has.
    """

    method: str
    target: str
    seeds: int
    flops: float
    params: float
    error_before: float | None
    error_after: float | None
    error_spread: float | None
    select_seconds: float
    finetune_seconds: float
    failed: int = 0  # of the seeds, those with a network that could not be fine-tuned


@dataclass(frozen=True)
class MethodDone:
    """An event: a method's networks with one seed are fine-tuned."""

    method: str
    seed: int
    done: int  # of all steps
    steps: int
    rows: tuple[Row, ...]


ComparisonEvent = MethodDone | Stage | EpochDone | FinetuneDiverged | FinetunePlanned | Remark
ComparisonObserver = Callable[[ComparisonEvent], None]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The outcome of `compare`; it prints as a table."""

    targets: tuple[Target, ...]
    original_error: float
    original_flops: int
    rows: tuple[Row, ...] = ()
    searches: tuple[Search, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)  # of methods, for a page that knows none of them

    def __repr__(self) -> str:
        parts, means = [f"original: {percent(self.original_error)} test error"], self.means()
        for target in self.targets:
            parts.append(f"{target.name}: {percent(target.flops / self.original_flops, 1)} of the FLOPs")
            head = ["method", "cut only", "fine-tuned", "FLOPs", "parameters", "time", "kind"]
            rows = [self._table_cells(mean) for mean in means if mean.target == target.name]
            parts[-1] += f"\n{aligned([head, *rows])}"
        if self.searches:
            head = ["search", "seed", "evaluations", "hypervolume", "time", "evaluated by"]
            rows = [
                [each.method, str(each.seed), str(each.evaluations), f"{each.hypervolume:.4f}",
                 duration(each.seconds), each.evaluation]
                for each in self.searches
            ]  # fmt: skip
            parts.append(aligned([head, *rows]))
        return "\n\n".join(parts)

    def _table_cells(self, mean: Mean) -> list[str]:
        spread = "" if mean.error_spread is None else f" ± {100 * mean.error_spread:.2f}"
        return [
            mean.method,
            _error_percent(mean.error_before, 2, " %"),
            _error_percent(mean.error_after, 2, f"{spread} %"),
            percent(mean.flops / self.original_flops, 1),
            f"{mean.params:,.0f}",
            duration(mean.select_seconds + mean.finetune_seconds),
            self.kinds.get(mean.method, ""),
        ]

    def with_results(self, rows: Sequence[Row], search: Search | None, kind: str) -> "Comparison":
        """The comparison with the networks of one method and seed added or replaced."""
        done = {(row.method, row.seed) for row in rows}
        others = [row for row in self.rows if (row.method, row.seed) not in done]
        searches = [old for old in self.searches if (old.method, old.seed) not in done]
        return replace(
            self,
            rows=(*others, *rows),
            searches=(*searches, *((search,) if search is not None else ())),
            kinds={**self.kinds, **dict.fromkeys((row.method for row in rows), kind)},
        )

    def means(self) -> list[Mean]:
        """Every method at every target, targets in their order, the most accurate method first."""
        means = []
        for target in self.targets:
            by_method: dict[str, list[Row]] = {}
            for row in self.rows:
                if row.target == target.name:
                    by_method.setdefault(row.method, []).append(row)
            means += sorted((_mean_over_seeds(rows) for rows in by_method.values()), key=_error_to_sort_by)
        return means

    def to_table(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "original": {"test_error": self.original_error, "flops": self.original_flops},
            "targets": [asdict(target) for target in self.targets],
            "rows": [asdict(row) for row in self.rows],
            "means": [asdict(mean) for mean in self.means()],
            "searches": [asdict(search) for search in self.searches],
            "kinds": dict(self.kinds),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Comparison":
        """The comparison that `to_table` wrote."""
        return cls(
            targets=tuple(Target(**target) for target in table["targets"]),
            original_error=table["original"]["test_error"],
            original_flops=table["original"]["flops"],
            rows=tuple(Row(**row) for row in table["rows"]),
            searches=tuple(Search(**search) for search in table["searches"]),
            kinds=dict(table["kinds"]),
        )


def method_line(event: MethodDone) -> str:
    """The errors of a method's networks, and the progress of the comparison."""
    networks = ", ".join(
        f"{row.target} {_error_percent(row.error_before, 1)} -> {_error_percent(row.error_after, 2, ' %')}"
        for row in event.rows
    )
    spent = sum(row.select_seconds + row.finetune_seconds for row in event.rows)
    return f"{event.done:3}/{event.steps}  {event.method}, seed {event.seed}: {networks}  ({duration(spent)})"


def _error_percent(error: float | None, digits: int, unit: str = "") -> str:
    return "failed" if error is None else f"{100 * error:.{digits}f}{unit}"


def _error_to_sort_by(mean: Mean) -> float:
    return math.inf if mean.error_after is None else mean.error_after


def read_comparison(path: Path) -> Comparison:
    """The comparison in a file of `to_table`; a damaged file is an error."""
    try:
        comparison = Comparison.from_table(json.loads(path.read_text(encoding="utf-8")))
        comparison.means()  # all its numbers are numbers
        return comparison
    except (OSError, *DAMAGE) as error:
        raise RunError(
            f"{path} is not a whole comparison ({type(error).__name__}: {error}); delete it and repeat the "
            "same command: networks that were proposed and trained are kept"
        ) from error


def _mean_over_seeds(rows: Sequence[Row]) -> Mean:
    def over(name: str) -> float:
        return statistics.fmean(getattr(row, name) for row in rows)

    before = [row.error_before for row in rows if row.error_before is not None]
    errors = [row.error_after for row in rows if row.error_after is not None]
    return Mean(
        method=rows[0].method,
        target=rows[0].target,
        seeds=len(rows),
        flops=over("flops"),
        params=over("params"),
        error_before=statistics.fmean(before) if before else None,
        error_after=statistics.fmean(errors) if errors else None,
        error_spread=statistics.stdev(errors) if len(errors) > 1 else None,
        select_seconds=over("select_seconds"),
        finetune_seconds=over("finetune_seconds"),
        failed=len(rows) - len(errors),
    )


def hypervolume(points: NDArray[np.float64] | Iterable[tuple[float, float]]) -> float:
    """The area within (0, 1) x (0, 1) that the points dominate: the larger, the better.

    >>> hypervolume([(0.5, 0.5)]), hypervolume([(0.5, 0.5), (0.25, 0.75), (0.6, 0.6)])
    (0.25, 0.3125)
    """
    area, ceiling = 0.0, 1.0
    for error, cost in sorted((float(error), float(cost)) for error, cost in points):
        if error < 1.0 and cost < ceiling:
            area += (1.0 - error) * (ceiling - cost)
            ceiling = cost
    return area
