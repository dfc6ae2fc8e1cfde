"""A small guided run for tests, made by the real strategy and written straight into a history."""

from pathlib import Path
from typing import Any

import numpy as np

from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.space import Space
from deeppruning.reporting import data as reporting
from deeppruning.runs import Evaluation, RunFolder
from report_runs import config

GENES, OFFSPRING, GENERATIONS = 48, 12, 5
LAYERS = {name: list(range(12 * place, 12 * place + 12)) for place, name in enumerate(("a", "b", "c", "d"))}
RANGE = {"low": 0.2, "high": 0.9, "bins": 8}
SEARCH = {"strategy": "guided", "offspring": OFFSPRING, "generations": GENERATIONS, "seed": 7, **RANGE}
WEIGHT = np.random.default_rng(5).random(GENES)
PRICE = np.repeat([400, 300, 200, 100], 12)


def strategy() -> GuidedStrategy:
    """The strategy of the run, before its first generation."""
    space = Space(
        GENES,
        list(LAYERS.values()),
        scores={"l1": WEIGHT, "span": WEIGHT[::-1].copy()},
        price=lambda genomes: genomes @ PRICE,
    )
    return GuidedStrategy(space, offspring=OFFSPRING, generations=GENERATIONS, seed=7, **RANGE)


def evaluate(number: int, genome: np.ndarray[Any, np.dtype[np.bool_]]) -> Evaluation:
    """An error by what is lost, a score that is another, and a failure for every eleventh."""
    flops = int(genome @ PRICE)
    common = {"genome": genome, "flops": flops, "params": int(genome.sum()), "seconds": 0.5, "worker": "test"}
    if number % 11 == 10:
        return Evaluation(**common, error=None, cost=None, status="failed", detail="OSError: no <luck>")
    lost = float(WEIGHT[~genome].sum() / WEIGHT.sum())
    return Evaluation(**common, error=0.05 + 0.9 * lost, cost=float(flops), score=lost**2)


def make_guided_run(path: Path, generations: int = GENERATIONS) -> tuple[Path, GuidedStrategy]:
    """A run of so many generations, closed, and the strategy that made it."""
    search = strategy()
    with RunFolder.create(path, config()) as run:
        run.history.set_fact("layers", LAYERS)
        figures = {"train_error": 0.05, "flops": int(PRICE.sum()), "params": GENES}
        run.history.set_fact("original", figures)
        for generation in range(1, generations + 1):
            genomes, ids = search.ask(), search.ids
            origins = [(origin.operator, origin.parents) for origin in search.origins]
            run.history.record_generation(generation, list(zip(ids, genomes, strict=True)), origins)
            for id_, genome in zip(ids, genomes, strict=True):
                run.history.record_evaluation(evaluate(id_, genome))
            rows = [row.evaluated for row in run.history.candidates() if row.generation == generation]
            search.tell(np.array([row.objectives for row in rows]), np.array([row.judged for row in rows]))
            run.history.record_picks(generation, {role: pick.id for role, pick in search.picks.items()})
    return path, search


def collect_guided(path: Path) -> dict[str, Any]:
    """What the page shows of it, with the options of a guided search."""
    with RunFolder.open(path, read_only=True) as run:
        run.config["search"] = SEARCH
        return reporting._collect_report_data(run, str(path), run.history.snapshot())
