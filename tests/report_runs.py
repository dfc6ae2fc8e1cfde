"""Small runs for the tests of the report, written straight into a history: no network is trained."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from deeppruning.comparison.problem import Target
from deeppruning.comparison.results import Comparison, Row, Search
from deeppruning.runs import EpochRow, Evaluation, RunFolder

GENES = 6
LAYERS = {"stem": [0, 1, 2, 3], "head": [4, 5, -1], "fc": [-1, -1]}
ORIGINAL = {"train_error": 0.02, "flops": 1_000_000, "params": 2_000}
OFFSPRING, GENERATIONS = 4, 3


def config(**tables: Any) -> dict[str, Any]:
    """The options of a run on digits."""
    return {
        "search": {"offspring": OFFSPRING, "generations": GENERATIONS, "selection": "plus", "seed": 7},
        "finetune": {"epochs": 2, "seed": 5},
        "model": {"spec": "resnet20"},
        "data": {"data": "digits"},
        **tables,
    }


def genome(number: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """A genome for each number below 64; the first gene is the highest bit, number 63 is the full network."""
    return np.array([number >> shift & 1 for shift in range(GENES - 1, -1, -1)], dtype=np.bool_)


def add_generation(run: RunFolder, generation: int) -> None:
    """Candidates with ever fewer filters and more error, and picks among all so far."""
    first = 0 if generation == 1 else 3 + OFFSPRING * (generation - 1)
    ids = range(first, 3 + OFFSPRING * generation)
    run.history.record_generation(generation, [(id_, genome(62 - id_)) for id_ in ids])
    for id_ in ids:
        run.history.record_evaluation(
            Evaluation(
                genome=genome(62 - id_),
                error=0.05 + 0.05 * id_,
                cost=float(900_000 - 40_000 * id_),
                flops=900_000 - 40_000 * id_,
                params=1_900 - 90 * id_,
                seconds=1.5,
                worker="test",
            )
        )
    run.history.record_picks(generation, {"heavy": 0, "knee": ids[1], "light": ids[-1]})


def add_solutions(run: RunFolder, layers: dict[str, list[int]] = LAYERS) -> None:
    """Fine-tuning curves and final figures of the picks of the last generation."""
    run.history.set_fact("original", {**ORIGINAL, "test_error": 0.08})
    for role, id_, error in (("heavy", 0, 0.07), ("knee", 12, 0.10), ("light", 14, 0.2)):
        for epoch in (1, 2):
            run.history.record_epoch(
                EpochRow(f"candidate-{id_}", epoch, 0.5, error, error + 0.1 / epoch, 0.01, 1.0)
            )
        flops = 900_000 - 40_000 * id_
        fact = {
            "id": id_,
            "train_error": 0.05 + 0.05 * id_,
            "test_error": error,
            "flops": flops,
            "flops_pruned": 1 - flops / ORIGINAL["flops"],
            "params": 1_900 - 90 * id_,
            "widths": {name: len(genes) for name, genes in layers.items()},
        }
        run.history.set_fact(f"solution/{role}", fact)
    run.history.set_fact("finished", True)


@functools.cache
def recorded(generations: int, finished: bool) -> bytes:
    """A history of so many generations; kept, because every record waits for the disk."""
    with tempfile.TemporaryDirectory() as folder, RunFolder.create(f"{folder}/run", config()) as run:
        run.history.set_fact("original", ORIGINAL)
        run.history.set_fact("layers", LAYERS)
        for generation in range(1, generations + 1):
            add_generation(run, generation)
        if finished and generations == GENERATIONS:
            add_solutions(run)
        return (run.path / "history.sqlite").read_bytes()


def make_run(path: Path, generations: int = GENERATIONS, *, finished: bool = True, **tables: Any) -> Path:
    """A run of so many generations, closed; with all of them it is also fine-tuned unless told otherwise."""
    with RunFolder.create(path, config(**tables)):
        (path / "history.sqlite").write_bytes(recorded(generations, finished))
    return path


def write_comparison(folder: Path, methods: tuple[str, ...], seeds: int = 2) -> Path:
    """A comparison at the picks' FLOPs: each method errs by 0.01 more than the one named before it."""
    targets = tuple(Target(*pick) for pick in (("heavy", 900_000), ("knee", 420_000), ("light", 340_000)))
    rows = [
        Row(
            method=method,
            seed=seed,
            target=target.name,
            flops=target.flops - 1_000 * place,
            params=900,
            error_before=0.9,
            error_after=0.1 + 0.01 * place + 0.02 * seed + 0.1 * targets.index(target),
            select_seconds=2.0,
            finetune_seconds=100.0,
        )
        for seed in range(seeds)
        for place, method in enumerate(methods)
        for target in targets
    ]
    searches = [Search(methods[-1], seed, 15, 0.5 + 0.1 * seed) for seed in range(seeds)]
    comparison = Comparison(targets, 0.08, 1_000_000, tuple(rows), tuple(searches))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(comparison.to_table()))
    return folder
