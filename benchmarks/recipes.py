"""Fine-tuning recipes side by side: error after a short training from the same refitted network.

A network of CIFAR-10 is searched without labels (two generations), one of the front is refitted, and each
recipe trains a copy of it on all training images, with distillation from the original. Each row is added to a
file of JSON lines; rows that are there already are not computed again. Seconds are those of the processor.

    python benchmarks/recipes.py --model resnet20 --weights resnet20-12fca82f.th --data-dir data \
        --shares 0.4 0.2 --epochs 0.25 1 --seeds 0 1 2 --recipes before default
    python benchmarks/recipes.py ... --recipes default "muon:optimizer=muon" "T=4:temperature=4"

A recipe is `before` (the default of earlier versions), `default`, or a name and the options of FinetuneConfig
that it changes.
"""

import argparse
import json
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import deeppruning as dp
from deeppruning.config import FinetuneConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_indices
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.models import create_model
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.training.evaluate import evaluate
from deeppruning.training.inside import Inside
from deeppruning.training.loop import fit
from deeppruning.training.planning import usual_rate
from deeppruning.training.weights import load_weights, normalization_for

BEFORE: dict[str, Any] = {
    "schedule": "cosine",
    "temperature": 4.0,
    "batch_size": 128,
    "lr": 0.01,
    "features": 0.0,
}
SAMPLE = 1000  # images to search and refit with


def recipe(text: str) -> tuple[str, FinetuneConfig]:
    """A recipe by its name and changes."""
    name, _, changes = text.partition(":")
    if name == "before":
        return name, FinetuneConfig(**BEFORE)
    given = dict(pair.split("=", 1) for pair in changes.split(",") if pair)
    return name, FinetuneConfig(**{key: parsed(value) for key, value in given.items()})


def parsed(text: str) -> Any:
    """JSON, or else a plain text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def starting_point(
    model: nn.Module, train: ImageSet, share: float, seed: int, folder: Path
) -> tuple[nn.Module, float, Recipe]:
    """A refitted network within this share of the FLOPs, its share and cut; each search is done once."""
    example = torch.zeros(1, *train.image_shape)
    sample = train.subset(balanced_indices(train, SAMPLE, seed))
    inputs = normalize(sample.images, sample.normalization)
    path = folder / f"front-{share:g}-{seed}.json"
    graph = ChannelGraph(model, example, depth=True, round_to=1)
    whole = graph.flops(graph.full_genome())
    if not path.exists():
        search = dp.SearchConfig(
            generations=2, focus=share, low=0.75 * share, high=0.9, round_to=1, threads=1, seed=seed
        )
        front = dp.search(model, inputs, search=search, workers=1, progress=False)
        rows = [
            ["".join("01"[int(bit)] for bit in each.genome), each.flops / whole, each.evaluation.judged]
            for each in front.candidates
            if each.evaluation is not None and each.evaluation.error is not None
        ]
        path.write_text(json.dumps(rows))
    within = [row for row in json.loads(path.read_text()) if row[1] <= share]
    best = min(within, key=lambda row: row[2])
    genome = np.array([bit == "1" for bit in best[0]])
    return dp.refit(graph, genome, inputs), best[1], graph.recipe(genome)


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True, help="with CIFAR-10")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.4, 0.2])
    parser.add_argument("--epochs", type=float, nargs="+", default=[0.25, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--recipes", nargs="+", default=["before", "default"])
    parser.add_argument("--folder", type=Path, default=Path("recipes"), help="of results [recipes]")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    model = create_model(options.model, num_classes=10, shortcut="pad")
    load_weights(model, options.weights)
    data = load_data("cifar10", data_dir=options.data_dir).with_normalization(
        normalization_for(options.weights)
    )
    results = options.folder / "recipes.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    done = {tuple(json.loads(line)["key"]) for line in lines}
    for seed in options.seeds:
        for share in options.shares:
            thin, left = None, 0.0
            for epochs in options.epochs:
                for name, config in map(recipe, options.recipes):
                    key = (options.model, share, seed, epochs, name)
                    if key in done:
                        continue
                    if thin is None:
                        thin, left, cut = starting_point(model, data.train, share, seed, options.folder)
                        before = evaluate(thin, data.test).error
                    lr = usual_rate(config) if config.lr is None else config.lr
                    config = replace(config, epochs=epochs, lr=lr, seed=seed)
                    tuned, start = deepcopy(thin), time.process_time()
                    some = as_call(torch.zeros(2, *data.train.image_shape))
                    inside = Inside.of(tuned, model, cut, some, config.features) if config.features else None
                    fit(
                        tuned, data.train, config, teacher=model, distill=config.distill,
                        temperature=config.temperature, inside=inside,
                    )  # fmt: skip
                    spent = time.process_time() - start
                    row = {
                        "key": key, "flops": left, "untrained": before,
                        "error": evaluate(tuned, data.test).error, "seconds": spent,
                    }  # fmt: skip
                    with results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
