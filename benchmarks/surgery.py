"""From a mask to a thin network, ours against Torch-Pruning, and the price of a thousand genomes.

    pip install torch-pruning==1.6.1
    python benchmarks/surgery.py

Same networks, same masks, taken in turn in one process on one thread; medians of processor time. Our
graph is built once for a network (its own column); Torch-Pruning changes the network it is given, so
each of its thin networks needs a copy and a graph of its own. Its cut alone, with the copy and the
graph given for free, is a column too.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.metadata
import importlib.util
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.graph import ChannelGraph
from deeppruning.models import create_model

NETWORKS: dict[str, dict[str, Any]] = {
    "resnet56, padded shortcut": {"name": "resnet56", "shortcut": "pad"},
    "resnet56, 1x1 shortcut": {"name": "resnet56", "shortcut": "conv"},
    "vgg16": {"name": "vgg16"},
    "densenet100": {"name": "densenet100"},
    "mobilenet_v2": {"name": "mobilenet_v2"},
}
POPULATION = 1000


@dataclass
class Timings:
    """Seconds of processor time, one entry a mask."""

    build: float
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    their_cut: list[float] = field(default_factory=list)
    pricing: list[float] = field(default_factory=list)
    verdicts: set[str] = field(default_factory=set)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a call and its result; on one thread it is the wall time of an idle machine."""
    gc.collect()
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def removed_filters(model: nn.Module, graph: ChannelGraph, genome: Any) -> dict[str, list[int]]:
    """The filters a genome removes in each convolution, read off a cut of weights that hold their index."""
    weights = copy.deepcopy(model.state_dict())
    convolutions = {name: m for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    with torch.no_grad():
        for module in convolutions.values():
            numbers = torch.arange(module.out_channels, dtype=module.weight.dtype)
            module.weight.copy_(numbers.view(-1, 1, 1, 1).expand_as(module.weight))
    thin = graph.prune(genome)
    model.load_state_dict(weights)
    removed = {}
    for name, module in convolutions.items():
        kept = set(thin.get_submodule(name).weight[:, 0, 0, 0].long().tolist())
        gone = [number for number in range(module.out_channels) if number not in kept]
        if gone:
            removed[name] = gone
    return removed


def torch_pruning_cut(model: nn.Module, images: Tensor, removed: dict[str, list[int]]) -> tuple[Any, float]:
    """A thin network made by Torch-Pruning, and the seconds of the cut alone."""
    import torch_pruning as tp

    thin = copy.deepcopy(model)
    graph = tp.DependencyGraph().build_dependency(thin, example_inputs=images)
    modules = dict(thin.named_modules())
    start = time.process_time()
    done: set[nn.Module] = set()
    for name, filters in removed.items():
        if modules[name] not in done:
            group = graph.get_pruning_group(modules[name], tp.prune_conv_out_channels, filters)
            done.update(
                dependency.target.module
                for dependency, _ in group
                if graph.is_out_channel_pruning_fn(dependency.handler)
            )
            group.prune()
    return thin, time.process_time() - start


def verdict(ours: nn.Module, theirs: nn.Module, images: Tensor) -> str:
    """Whether Torch-Pruning's network is the one that ours is."""
    try:
        with torch.no_grad():
            found = theirs.eval()(images)
    except RuntimeError as error:
        return f"its network fails in forward: {' '.join(str(error).split())[:90]}"
    with torch.no_grad():
        expected = ours.eval()(images)
    same = torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
    return "same network" if same else "its network gives another output"


def measure(options: dict[str, Any], masks: int, keep: float) -> Timings:
    """All timings of one network."""
    torch.manual_seed(0)
    model = create_model(num_classes=10, **options).eval()
    images = torch.randn(1, 3, 32, 32)
    seconds, graph = timed(lambda: ChannelGraph(model, images))
    timings = Timings(build=seconds)
    generator = np.random.default_rng(0)
    for _ in range(masks):
        genome = generator.random(graph.num_genes) < keep
        removed = removed_filters(model, graph, genome)
        seconds, ours = timed(lambda: graph.prune(genome))  # noqa: B023
        timings.ours.append(seconds)
        try:
            seconds, (theirs, cut) = timed(lambda: torch_pruning_cut(model, images, removed))  # noqa: B023
        except Exception as error:
            timings.verdicts.add(f"its cut fails: {type(error).__name__}: {error}"[:110])
            continue
        timings.theirs.append(seconds)
        timings.their_cut.append(cut)
        timings.verdicts.add(verdict(ours, theirs, images))
        population = generator.random((POPULATION, graph.num_genes)) < 0.9
        timings.pricing.append(timed(lambda: graph.flops(population))[0])  # noqa: B023
    return timings


def row(label: str, timings: Timings) -> str:
    """One line of the table."""
    ours = 1e3 * statistics.median(timings.ours)
    cells = [label, f"{timings.build:.2f} s", f"{ours:.1f} ms"]
    if timings.theirs:
        whole, cut = (1e3 * statistics.median(times) for times in (timings.theirs, timings.their_cut))
        cells += [f"{whole:.0f} ms", f"{whole / ours:.0f}x", f"{cut:.0f} ms", f"{cut / ours:.0f}x"]
    else:
        cells += ["-", "-", "-", "-"]
    cells += [
        f"{1e3 * statistics.median(timings.pricing or [0.0]):.1f} ms",
        "; ".join(sorted(timings.verdicts)),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure all networks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--masks", type=int, default=9, help="random masks a network")
    parser.add_argument("--keep", type=float, default=0.5, help="share of filters that a mask keeps")
    options = parser.parse_args()
    if importlib.util.find_spec("torch_pruning") is None:
        sys.exit("Torch-Pruning is not installed: pip install --no-deps torch-pruning==1.6.1")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    heads = ("network", "our graph", "our cut", "Torch-Pruning", "ratio", "its cut alone", "ratio")
    heads += (f"{POPULATION:,} genomes priced", "what Torch-Pruning made")
    version = importlib.metadata.version("torch-pruning")
    print(
        f"torch {torch.__version__}, Torch-Pruning {version}, Python {platform.python_version()}, one thread,"
    )
    print(f"{100 * options.keep:.0f} % of the filters kept, medians of {options.masks} masks\n")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for label, network in NETWORKS.items():
        print(row(label, measure(network, options.masks, options.keep)), flush=True)


if __name__ == "__main__":
    main()
