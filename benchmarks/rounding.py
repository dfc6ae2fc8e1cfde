"""Do widths in multiples cost accuracy at the same latency? Searches with multiples of 1, 4 and 8, measured.

    python benchmarks/rounding.py --weights resnet20.th [--model resnet20] [--data-dir data] [--multiples 1 8]

For each objective (FLOPs, and latency planned for onnxruntime with one input) and each multiple the same
guided search by inputs alone, then some of its front, refitted: the error on test images, and the latency
measured whole, all networks in turns. Shown is the least error within shares of the original's latency.
Searches take minutes each; what they find is kept in --out, and a second call measures latencies only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from faster import load_images
from torch import nn

import deeppruning as dp
from deeppruning.config import RUNTIMES, SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.sample import balanced_sample
from deeppruning.genome import pack_genome, unpack_genome
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.result import Front
from deeppruning.jobs.solution import Solution
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.models import create_model
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.training.evaluate import evaluate
from deeppruning.training.weights import load_weights

EXAMPLE = torch.zeros(1, 3, 32, 32)
TAKEN = 9  # networks of each search
SHOWN = (0.8, 0.7, 0.6, 0.5, 0.4)  # shares of the original's latency


def some_of(front: Front) -> list[Solution]:
    """Members of the front (nothing cheaper is judged better), evenly along it."""
    usable = sorted(
        (one for one in front.candidates if one.cost is not None), key=lambda one: one.evaluated.cost
    )
    members = []
    for one in usable:
        if not members or one.evaluated.judged < members[-1].evaluated.judged:
            members.append(one)
    places = np.unique(np.linspace(0, len(members) - 1, TAKEN).round().astype(int))
    return [Solution.of_candidate(members[place], front.meter.context) for place in places]


def search(
    model: nn.Module, inputs: torch.Tensor, test: ImageSet, config: SearchConfig
) -> list[dict[str, float | str]]:
    """Genomes of one search with their test errors, as they are kept."""
    found = []
    for thin in some_of(dp.search(model, inputs, search=config, workers=1, progress=False)):
        error = evaluate(thin.model, test).error
        found.append({"genome": pack_genome(thin.genome).hex(), "error": error})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--multiples", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--objectives", nargs="+", default=["flops", "latency"])
    parser.add_argument("--generations", type=int, default=5)
    parser.add_argument("--test-images", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("rounding.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    model = create_model(options.model, num_classes=10)
    load_weights(model, options.weights)
    model.eval()
    train, test = load_images(options.weights, options.data_dir)
    sample, test = balanced_sample(train, 1000, 0), balanced_sample(test, options.test_images, 0)
    inputs = normalize(sample.images, sample.normalization)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    for objective in options.objectives:
        for multiple in options.multiples:
            name = f"{objective}, multiples of {multiple}"
            if name not in kept:
                config = SearchConfig(
                    objective=objective,
                    latency_runtime="onnxruntime",
                    round_to=multiple,
                    generations=options.generations,
                )
                kept[name] = search(model, inputs, test, config)
                options.out.write_text(json.dumps(kept))
    table(ChannelGraph(model, EXAMPLE, depth=True), kept)


def table(graph: ChannelGraph, kept: dict[str, list[dict[str, str]]]) -> None:
    """The least error of each search within shares of the latency, under some conditions."""
    rows = [(name, float(one["error"]), one["genome"]) for name, found in kept.items() for one in found]
    genomes = [unpack_genome(bytes.fromhex(packed), graph.num_genes) for _, _, packed in rows]
    for runtime in reversed(RUNTIMES):
        for batch in (1, 32):
            conditions = Conditions(runtime, batch, 1)
            networks = [graph.prune(genome) for genome in (graph.full_genome(), *genomes)]
            whole, *times = measure_networks(networks, EXAMPLE, conditions)
            print(f"\n{conditions} ({1000 * whole:.2f} ms)")
            print("| search by | " + " | ".join(f"{share:.0%}" for share in SHOWN) + " |")
            print("|---|" + "---|" * len(SHOWN))
            for name in kept:
                own = [
                    (seconds / whole, row[1])
                    for seconds, row in zip(times, rows, strict=True)
                    if row[0] == name
                ]
                best = [min((e for t, e in own if t <= share), default=None) for share in SHOWN]
                cells = ["-" if error is None else f"{100 * error:.1f}" for error in best]
                print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
