"""Latency of ResNet56 without some of its blocks, beside networks of the same FLOPs that are only thinner.

    python benchmarks/depth.py

Blocks go from the last of each stage to the first but one, all remaining filters stay. The thin rival keeps
all blocks and the same share of every layer (the first filters: weights do not matter for latency), such that
its FLOPs are the same. All networks are measured in turns in one process on one thread, in torch and in
onnxruntime; the figure is the median of the rounds, and its ratio to the original's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from deeppruning import ChannelGraph
from deeppruning.deploying.onnx_graph import open_session, run_session
from deeppruning.exporting import export_onnx
from deeppruning.models import create_model

GONE = (0, 4, 8, 12, 16)


def without_blocks(graph: ChannelGraph, count: int) -> np.ndarray:
    """A genome without `count` residual blocks, taken from the stages in turns, the last ones first."""
    stages: dict[str, list[tuple[int, ...]]] = {}
    for group in graph.groups:
        if group.removable:
            stages.setdefault(group.layers[0].split(".")[0], []).append(group.genes)
    genome = graph.full_genome()
    for number in range(count):
        blocks = list(stages.values())[number % len(stages)]
        genome[list(blocks.pop())] = False
    return genome


def of_same_flops(graph: ChannelGraph, flops: int) -> np.ndarray:
    """A genome that keeps the same share of every layer, of about these FLOPs."""
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if graph.flops(of_share(graph, middle)) > flops:
            high = middle
        else:
            low = middle
    return of_share(graph, low)


def of_share(graph: ChannelGraph, share: float) -> np.ndarray:
    genome = graph.full_genome()
    for group in graph.groups:
        if group.genes:
            genes = np.array(group.genes)
            genome[genes[max(1, round(share * len(genes))) :]] = False
    return genome


def runners(model: nn.Module, batch: int, folder: Path, name: str) -> dict[str, Callable[[], object]]:
    """One forward pass in torch and one in onnxruntime."""
    images = torch.randn(batch, 3, 32, 32)
    file = folder / f"{name}.onnx"
    if not file.exists():
        export_onnx(model, torch.zeros(1, 3, 32, 32), file, tolerance=1.0)  # random weights, huge outputs
    session = open_session(file, threads=1)

    def by_torch() -> object:
        with torch.inference_mode():
            return model(images)

    return {"torch": by_torch, "onnxruntime": lambda: run_session(session, images)}


def in_turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each call; every round calls each of them once."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(values[2:]) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = create_model("resnet56", num_classes=10).eval()
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32), depth=True)
    full = graph.flops(graph.full_genome())
    networks = {}
    for count in GONE:
        genome = without_blocks(graph, count)
        networks[f"{count} blocks gone"] = (graph.prune(genome).eval(), graph.flops(genome) / full)
        if count:
            rival = of_same_flops(graph, graph.flops(genome))
            networks[f"as thin as {count} gone"] = (graph.prune(rival).eval(), graph.flops(rival) / full)
    with tempfile.TemporaryDirectory() as folder:
        measured: dict[str, dict[str, float]] = {name: {} for name in networks}
        for batch in options.batches:
            rounds = options.rounds * (4 if batch == 1 else 1)
            every = {
                name: runners(network, batch, Path(folder), name.replace(" ", "-"))
                for name, (network, _) in networks.items()
            }
            for kind in ("torch", "onnxruntime"):
                found = in_turns({name: calls[kind] for name, calls in every.items()}, rounds)
                for name, milliseconds in found.items():
                    measured[name][f"{kind}, batch {batch}"] = milliseconds
    columns = list(next(iter(measured.values())))
    print(
        f"resnet56, {torch.__version__}, one thread, median of {options.rounds} rounds (batch 1: four times)"
    )
    print("| network | FLOPs left | " + " | ".join(f"{each}, ms" for each in columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    base = measured["0 blocks gone"]
    for name, (_, share) in networks.items():
        cells = [f"{measured[name][c]:.2f} ({measured[name][c] / base[c]:.2f}x)" for c in columns]
        print(f"| {name} | {share:.1%} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
