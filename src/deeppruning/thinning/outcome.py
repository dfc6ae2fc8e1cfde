"""What thinning an ONNX file gives back: the file, how it differs, and the front it was chosen from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppruning.amounts import aligned, percent
from deeppruning.jobs.solution import Solution
from deeppruning.runs.records import Candidate
from deeppruning.thinning.measuring import Drift, SideBySide

POINTS = 16  # of the front that are shown


@dataclass(frozen=True)
class FrontPoint:
    """One network of the front: its number, its share of the FLOPs, and its drift in the search."""

    candidate: int
    flops: int
    flops_share: float
    drift: float
    chosen: bool


@dataclass(frozen=True, eq=False, repr=False)
class Thinned:
    """A thin ONNX file, written and measured; it prints as a text."""

    path: Path
    solution: Solution  # .model, .genome, .flops, .params
    format: str
    difference: float  # the largest difference of the file's outputs from the thin network's
    drift: Drift
    latency: SideBySide
    bytes_before: int
    bytes_after: int
    front: Sequence[FrontPoint]
    run_dir: Path
    page: Path
    limits: str
    batch: int = 1
    threads: int = 1
    tuned: str = ""  # how tuning went, if it was asked for

    def table(self) -> str:
        """The front, from the largest network to the smallest, the chosen one marked."""
        kind = "relative squared distance" if self.drift.answers is None else "other answers"
        rows = [["FLOPs", "of the original", f"drift in the search ({kind})", ""]]
        are_shares = all(point.drift <= 1 for point in self.front)
        for point in _spread(self.front):
            flops, share = f"{point.flops / 1e6:,.1f} M", percent(point.flops_share, 1)
            drift = percent(point.drift) if are_shares else f"{point.drift:.4g}"
            rows.append([flops, share, drift, "<-" if point.chosen else ""])
        return aligned(rows)

    def __repr__(self) -> str:
        size = f"{self.bytes_after:,} bytes, {percent(self.bytes_after / self.bytes_before, 1)} of the file's"
        solution, threads = self.solution, "1 thread" if self.threads == 1 else f"{self.threads} threads"
        flops = f"{percent(1 - solution.flops_pruned, 1)} of the FLOPs"
        return "\n".join(
            [
                *([self.tuned] if self.tuned else []),
                f"{self.path}  ({self.format}, {size})",
                f"target {self.limits}: {flops}, {solution.params:,} parameters",
                f"largest difference between the file and the thin network: {self.difference:.1e}",
                f"drift from the original on inputs that were not used: {self.drift}",
                f"latency (onnxruntime, batch {self.batch}, {threads}): {self.latency}",
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "path": str(self.path),
            "format": self.format,
            "target": self.limits,
            "flops": self.solution.flops,
            "flops_share": 1 - self.solution.flops_pruned,
            "params": self.solution.params,
            "bytes": self.bytes_after,
            "bytes_before": self.bytes_before,
            "difference": self.difference,
            "drift": {**vars(self.drift)},
            "latency": {**vars(self.latency)},
            "front": [vars(point) for point in self.front],
            "run": str(self.run_dir),
            **({"tuned": self.tuned} if self.tuned else {}),
        }


def front_rows(front: Sequence[Candidate], chosen: Solution) -> list[FrontPoint]:
    """The points of a front."""
    whole = chosen.flops / (1 - chosen.flops_pruned)
    return [
        FrontPoint(row.id, row.flops, row.flops / whole, float(row.train_error or 0.0), row.id == chosen.id)
        for row in front
    ]


def _spread(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """At most so many points as are shown, evenly spread, the chosen one among them."""
    if len(points) <= POINTS:
        return list(points)
    step = (len(points) - 1) / (POINTS - 1)
    places = {round(step * number) for number in range(POINTS)}
    places |= {place for place, point in enumerate(points) if point.chosen}
    return [points[place] for place in sorted(places)]
