"""How well the latency of thin networks is planned: predicted against measured, on genomes not seen before.

    python benchmarks/latency.py [--models resnet56 mobilenet_v2] [--batches 1 32] [--genomes 40]

For each network, runtime and batch: how long the plan took (from an empty cache), the rank correlation of
predicted and measured seconds beside that of FLOPs, and by how much the prediction is off.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from numpy.typing import ArrayLike

from deeppruning.config import RUNTIMES
from deeppruning.graph import ChannelGraph
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks, plan_latency, sampled_genomes
from deeppruning.models import create_model

SEED = 7  # of genomes other than those that a plan is fitted on


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's, for values that are hardly ever equal."""
    ranks = [np.argsort(np.argsort(np.asarray(values))) for values in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


def row(name: str, conditions: Conditions, genomes: int, size: int) -> str:
    """One line of the table."""
    model = create_model(name, num_classes=10).eval()
    example = torch.zeros(1, 3, size, size)
    graph = ChannelGraph(model, example, depth=True)
    begin = time.perf_counter()
    plan = plan_latency(graph, example, conditions)
    spent = time.perf_counter() - begin
    unseen = sampled_genomes(graph, genomes, seed=SEED)
    measured = measure_networks([graph.prune(one) for one in unseen], example, conditions)
    predicted = plan(graph, unseen)
    off = np.abs(predicted / measured - 1)
    ranked = rank_correlation(predicted, measured), rank_correlation(graph.flops(unseen), measured)
    return (
        f"| {name} | {conditions} | {spent:.0f} s | {1000 * measured[0]:.2f} ms | **{ranked[0]:.3f}** | "
        f"{ranked[1]:.3f} | {100 * np.median(off):.1f} % | {100 * off.max():.0f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet56", "mobilenet_v2"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--genomes", type=int, default=40)
    parser.add_argument("--image-size", type=int, default=32)
    options = parser.parse_args()
    print("| network | conditions | planning | original | rank correlation | of FLOPs | off, median | most |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for name in options.models:
            for runtime in options.runtimes:
                for batch in options.batches:
                    conditions = Conditions(runtime, batch, options.threads)
                    print(row(name, conditions, options.genomes, options.image_size), flush=True)


if __name__ == "__main__":
    main()
