"""What a comparison came to: a row for every network, means over seeds, and how well each search searched."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.problem import Target
from deeppruning.comparison.words import comparison_text
from deeppruning.errors import DAMAGE, RunError

OURS = "deeppruninges"  # the picks of the run that the comparison is matched to


@dataclass(frozen=True)
class Row:
    """One network of one method; errors are those on the test set, None where it has failed."""

    method: str
    seed: int
    target: str
    flops: int
    params: int
    error_before: float | None  # cut, not yet fine-tuned
    error_after: float | None
    select_seconds: float  # to find it, summed over workers; that of a method is shared among its networks
    finetune_seconds: float


@dataclass(frozen=True)
class Search:
    """How much of the space between nothing and the original a search has won, by all it evaluated.

    Errors of candidates that were judged in different ways differ, and so do hypervolumes.
    """

    method: str
    seed: int
    evaluations: int
    hypervolume: float
    evaluation: str = ""  # how its candidates were judged; comparisons of older versions do not say
    seconds: float = 0.0  # that it took in all, summed over workers


@dataclass(frozen=True)
class Mean:
    """A method at one target, over the seeds; spreads are standard deviations, None for a single seed.

    Errors are the means of the networks that have one, None where none has.
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
    failed: int = 0  # of the seeds, those whose network could not be fine-tuned


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
        return comparison_text(self)

    def with_results(self, rows: Sequence[Row], search: Search | None, kind: str) -> "Comparison":
        """The same with the networks of one method and seed, in place of those it had."""
        done = {(row.method, row.seed) for row in rows}
        kept = [row for row in self.rows if (row.method, row.seed) not in done]
        searches = [old for old in self.searches if (old.method, old.seed) not in done]
        return replace(
            self,
            rows=(*kept, *rows),
            searches=(*searches, *((search,) if search is not None else ())),
            kinds={**self.kinds, **dict.fromkeys((row.method for row in rows), kind)},
        )

    def means(self) -> list[Mean]:
        """Every method at every target, targets in their order, the most accurate method first."""
        found = []
        for target in self.targets:
            here = [row for row in self.rows if row.target == target.name]
            by_method: dict[str, list[Row]] = {}
            for row in here:
                by_method.setdefault(row.method, []).append(row)
            found += sorted((_mean(rows) for rows in by_method.values()), key=_by_error)
        return found

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
        """Read back what `to_table` wrote."""
        return cls(
            targets=tuple(Target(**target) for target in table["targets"]),
            original_error=table["original"]["test_error"],
            original_flops=table["original"]["flops"],
            rows=tuple(Row(**row) for row in table["rows"]),
            searches=tuple(Search(**search) for search in table["searches"]),
            kinds=dict(table.get("kinds", {})),
        )


def _by_error(mean: Mean) -> float:
    return math.inf if mean.error_after is None else mean.error_after


def read_comparison(path: Path) -> Comparison:
    """The comparison that a file of `to_table` holds; a damaged one is refused."""
    try:
        found = Comparison.from_table(json.loads(path.read_text(encoding="utf-8")))
        found.means()  # all its numbers are numbers
        return found
    except (OSError, *DAMAGE) as error:
        raise RunError(
            f"{path} is not a whole comparison ({type(error).__name__}: {error}); delete it and give the "
            "same command again: what was proposed and trained is kept"
        ) from error


def _mean(rows: Sequence[Row]) -> Mean:
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
    """The area within (0, 1) x (0, 1) that is no better than some point: the larger, the better the points.

    >>> hypervolume([(0.5, 0.5)]), hypervolume([(0.5, 0.5), (0.25, 0.75), (0.6, 0.6)])
    (0.25, 0.3125)
    """
    area, ceiling = 0.0, 1.0
    for error, cost in sorted((float(error), float(cost)) for error, cost in points):
        if error < 1.0 and cost < ceiling:
            area += (1.0 - error) * (ceiling - cost)
            ceiling = cost
    return area
