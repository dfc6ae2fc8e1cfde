"""What a search without labels costs on CIFAR-10, and how good its front is, over several seeds.

The network is searched by 1,000 training images without their labels. At each share of the FLOPs the best
candidate is refitted on all of them and tested on all test images; nothing is trained. Seconds are those of
the processor, on one thread. Each row is added to a file of JSON lines; searches that are there are not
repeated. Another version of the package is measured by its folder in PYTHONPATH.

    python benchmarks/fronts.py --weights resnet20-12fca82f.th --data-dir data --seeds 0 1 2
    PYTHONPATH=OLDER/src python benchmarks/fronts.py ... --name before
    python benchmarks/fronts.py ... --name long --set generations=30
"""

import argparse
import json
import resource
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import nn

import deeppruning as dp
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample
from deeppruning.models import create_model
from deeppruning.training.evaluate import evaluate
from deeppruning.training.weights import load_weights, normalization_for

SAMPLE = 1000  # images to search and refit with


def used() -> float:
    """Processor seconds of this process and of its workers that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(
    model: nn.Module, train: ImageSet, test: ImageSet, seed: int, shares: list[float], options: dict[str, Any]
) -> dict[str, Any]:
    """One search, and the test errors of its front."""
    sample = balanced_sample(train, SAMPLE, seed)
    inputs = normalize(sample.images, sample.normalization)
    before = used()
    config = dp.SearchConfig(round_to=1, threads=1, seed=seed, **options)
    front = dp.search(model, inputs, search=config, workers=1, progress=False)
    seconds = used() - before
    graph = dp.ChannelGraph(model, inputs[:1], depth=True, round_to=1)
    whole = graph.flops(graph.full_genome())
    candidates = [each for each in front.candidates if each.evaluation and each.evaluation.error is not None]
    points = []
    for share in shares:
        within = [each for each in candidates if each.evaluation.flops <= share * whole]
        best = min(within, key=lambda each: each.evaluation.judged)
        error = evaluate(dp.refit(graph, best.genome, inputs), test).error
        points.append({"at": share, "flops": best.evaluation.flops / whole, "error": error})
    return {"seed": seed, "seconds": seconds, "candidates": len(candidates), "points": points}


def summary(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, with their standard deviation."""
    lines = [f"{statistics.mean(row['seconds'] for row in rows):.0f} s, {rows[0]['candidates']} candidates"]
    for place, point in enumerate(rows[0]["points"]):
        errors = [100 * row["points"][place]["error"] for row in rows]
        flops = statistics.mean(100 * row["points"][place]["flops"] for row in rows)
        spread = f" +- {statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
        error = f"error {statistics.mean(errors):.1f}{spread} %"
        lines.append(f"  within {point['at']:.0%}: {flops:.1f} % of the FLOPs, {error}")
    return "\n".join(lines)


def parsed(setting: str) -> tuple[str, Any]:
    """`name=value`, the value as JSON."""
    name, _, value = setting.partition("=")
    return name, json.loads(value)


def main() -> None:
    """Measure what is missing, and print every name's means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True, help="with CIFAR-10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.75, 0.55, 0.4, 0.3, 0.2])
    parser.add_argument("--set", type=parsed, nargs="*", default=[], metavar="NAME=VALUE", dest="options")
    parser.add_argument("--name", default="now", help="how the rows are called [now]")
    parser.add_argument("--results", type=Path, default=Path("fronts.jsonl"), help="[fronts.jsonl]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = create_model(options.model, num_classes=10, shortcut="pad").eval()
    load_weights(model, options.weights)
    data = load_data("cifar10", data_dir=options.data_dir)
    data = data.with_normalization(normalization_for(options.weights))
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    rows = [row for row in map(json.loads, lines) if row["model"] == options.model]
    for seed in options.seeds:
        if any((row["name"], row["seed"]) == (options.name, seed) for row in rows):
            continue
        row = measure(model, data.train, data.test, seed, options.shares, dict(options.options))
        rows.append({"model": options.model, "name": options.name, **row})
        with options.results.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    for name in dict.fromkeys(row["name"] for row in rows):
        print(f"{name}: {summary([row for row in rows if row['name'] == name])}", flush=True)


if __name__ == "__main__":
    main()
