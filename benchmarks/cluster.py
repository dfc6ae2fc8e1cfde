"""How long a search takes on more machines: a simulation from the evaluation times that a run measured.

No cluster is needed. Each candidate of the run keeps the seconds it took; what changes is how many are
evaluated at a time. Three ways to run the same number of evaluations are compared:

- the paper's: a generation starts when the last candidate of the one before is done;
- more offspring in fewer generations, with the same barrier between them;
- steady state: a new offspring is made as soon as a worker is free, without generations.

Example: python benchmarks/cluster.py runs/r20 --workers 1 2 4 8 16 32 64 --offspring 20 40 100
"""

import argparse
import heapq
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import SearchConfig
from deeppruning.runs import RunFolder

Times = NDArray[np.float64]


def makespan(times: Iterable[float], workers: int) -> float:
    """The time until all is done when each free worker takes the next of the list."""
    free = [0.0] * workers
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def with_generations(generations: Iterable[Times], workers: int) -> float:
    """The time of one generation after the other."""
    return sum(makespan(times, workers) for times in generations)


def sizes(offspring: int, evaluations: int) -> list[int]:
    """Candidates of each generation: three more in the first, and what is left in the last."""
    found = [min(offspring + 3, evaluations)]
    while sum(found) < evaluations:
        found.append(min(offspring, evaluations - sum(found)))
    return found


def measured(run: Path) -> tuple[list[Times], SearchConfig]:
    """The seconds of each candidate by generation; of a failed one, too, for it took them."""
    with RunFolder.open(run, read_only=True) as opened:
        config = SearchConfig.from_table(opened.config["search"])
        rows = opened.history.candidates()
    seconds: dict[int, list[float]] = {}
    seen: set[bytes] = set()
    for row in rows:
        if row.evaluation is not None and row.genome.tobytes() not in seen:
            seen.add(row.genome.tobytes())  # equal genomes are evaluated once
            seconds.setdefault(row.generation, []).append(row.evaluation.seconds)
    return [np.array(times) for _, times in sorted(seconds.items())], config


def completed(generations: Sequence[Times], config: SearchConfig, rng: np.random.Generator) -> list[Times]:
    """What the run lacks is drawn from what it has: from the same generation, else from the last one."""
    filled = []
    for number, size in enumerate(sizes(config.offspring, config.evaluations)):
        known = generations[min(number, len(generations) - 1)]
        own = known[:size] if number < len(generations) else known[:0]
        filled.append(np.append(own, rng.choice(known, size - len(own))))
    return filled


def regrouped(times: Times, offspring: int, evaluations: int) -> list[Times]:
    """The same evaluations in generations of another size, in the order they came."""
    return np.split(times, np.cumsum(sizes(offspring, evaluations))[:-1])


def main() -> None:
    """Simulate and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--offspring", type=int, nargs="+", default=[40, 100], help="larger generations")
    parser.add_argument("--draws", type=int, default=200, help="simulations to average over")
    args = parser.parse_args()
    generations, config = measured(args.run)
    if not generations:
        parser.error(f"{args.run} has no evaluated candidate yet")
    rng = np.random.default_rng(0)
    everything = np.concatenate(generations)
    print(
        f"{args.run}: {len(everything)} of {config.evaluations} candidates measured, "
        f"{everything.mean():.1f} s each ({everything.min():.1f} to {everything.max():.1f})"
    )
    names = [
        f"{config.offspring} offspring",
        *(f"{size} offspring" for size in args.offspring),
        "steady state",
    ]
    table = np.zeros((len(args.workers), len(names)))
    alone = 0.0
    for _ in range(args.draws):
        filled = completed(generations, config, rng)
        times = np.concatenate(filled)
        alone += float(times.sum()) / args.draws
        larger = [regrouped(times, size, len(times)) for size in args.offspring]
        for row, workers in enumerate(args.workers):
            ways = [with_generations(way, workers) for way in (filled, *larger)]
            table[row] += [*ways, makespan(times, workers)]
    table /= args.draws
    print(f"\n| workers | {' | '.join(names)} |\n|{'---:|' * (len(names) + 1)}")
    for workers, row in zip(args.workers, table, strict=True):
        cells = [f"{seconds / 60:.1f} min ({alone / seconds:.1f}x)" for seconds in row]
        print(f"| {workers} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
