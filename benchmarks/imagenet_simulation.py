"""How long a measured search would take on more workers and on a GPU, from the times of its parts."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from typing import Any

from cluster import makespan
from imagenet_tables import add_row

PASS = 256  # photographs
SHARED = (
    "LayersScanned",
    "CandidateDone",
)  # events of work that workers share; all else waits for one process


def parts(timeline: Sequence[Sequence[Any]]) -> tuple[float, list[list[float]]]:
    """Seconds of what one process does, and those of the items of each round that workers share."""
    alone, rounds, last, kind = 0.0, [[]], 0.0, ""
    for name, _, processor in timeline:
        spent, last = processor - last, processor
        if name not in SHARED:
            alone += spent
        else:
            rounds[-1].append(spent)
        if name == "GenerationDone" or (kind == SHARED[0] and name != kind):
            rounds.append([])
        kind = name
    return alone, [each for each in rounds if each]


def with_workers(alone: float, rounds: Sequence[Sequence[float]], workers: int) -> float:
    """Seconds of the whole; a worker's first item of each kind takes longer, as it prepares what it needs."""
    total = alone
    for items in rounds:
        usual = statistics.median(items)
        first = max(0.0, items[0] - usual)
        total += first + makespan([min(items[0], usual), *items[1:]], min(workers, len(items)))
    return total


def simulate(options: argparse.Namespace) -> None:
    """Print and record the estimates."""
    front = json.loads(options.front.read_text())
    alone, rounds = parts(front["timeline"])
    alone += front["processor_seconds"] - front["timeline"][-1][2]
    row: dict[str, Any] = {"kind": "simulation", "network": front["network"], "name": front["name"]}
    row |= {"measured": front["processor_seconds"], "alone": alone, "items": sum(map(len, rounds))}
    row["workers"] = {str(count): with_workers(alone, rounds, count) for count in options.workers}
    for count, seconds in row["workers"].items():
        print(f"{count:>3} workers: {seconds:,.0f} s")
    # What workers share is taken to speed up as a forward pass does; what one process does is not.
    row["gpu_images"] = options.gpu_images
    row["gpu"] = (
        alone + (front["processor_seconds"] - alone) / front["pass_seconds"] * PASS / options.gpu_images
    )
    print(f"a GPU of {options.gpu_images:,.0f} images a second: {row['gpu']:,.0f} s")
    add_row(options.results, row)
