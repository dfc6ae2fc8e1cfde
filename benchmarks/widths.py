"""Which widths are fast here: ResNet56 at the same FLOPs, with widths as they fall and in multiples.

    python benchmarks/widths.py [--share 0.4] [--multiples 1 4 8 16]

The same share of every layer (the first filters: weights do not matter for time), no block gone, as near
below the FLOPs asked for as multiples allow. A forward pass in torch, in torch with channels last, and in
onnxruntime, one thread; and a training step of 128 images. All networks in turns, the fastest of
several passes; the ratio is to the original. Above the table: the multiples that `find_multiples` finds here.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.deploying import deployed
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.latency import Conditions
from deeppruning.latency.multiples import find_multiples
from deeppruning.latency.plan import measure_networks
from deeppruning.latency.runtimes import Forward
from deeppruning.latency.timing import in_turns
from deeppruning.models import create_model
from deeppruning.system.device import torch_threads

EXAMPLE = torch.zeros(1, 3, 32, 32)


def of_multiples(graph: ChannelGraph, share: float, multiple: int) -> Genome:
    """The same share of every layer in multiples, filled up to the FLOPs."""
    space = Space(
        graph.num_genes,
        [group.genes for group in graph.groups if group.prunable],
        scores={"first": -np.arange(float(graph.num_genes))},
        price=graph.flops,
        repair=graph.repair,
        multiple=multiple,
    )
    price = share * graph.flops(graph.full_genome())
    return space.fill(space.uniform(price, "first"), price, "first")


def channels_last(network: nn.Module, images: Tensor) -> Forward:
    """A forward pass in the other layout."""
    turned = _last(deployed(network.eval(), EXAMPLE))
    batch = images.contiguous(memory_format=torch.channels_last)

    def forward() -> object:
        with torch.inference_mode():
            return turned(batch)

    return forward


def _last(network: nn.Module) -> nn.Module:
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def training_step(network: nn.Module) -> Forward:
    """Forward and backward of 128 images, without the update."""
    _last(network.train())
    images = torch.randn(128, 3, 32, 32).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        network(images).square().mean().backward()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--multiples", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args()
    graph = ChannelGraph(create_model("resnet56", num_classes=10).eval(), EXAMPLE)
    genomes = {"original": graph.full_genome()}
    for multiple in options.multiples:
        name = "as they fall" if multiple == 1 else f"multiples of {multiple}"
        genomes[name] = of_multiples(graph, options.share, multiple)
    columns: dict[str, list[float]] = {}
    for batch in options.batches:
        for runtime in ("torch", "onnxruntime"):
            thin = [graph.prune(genome) for genome in genomes.values()]
            columns[f"{runtime}, batch {batch}"] = measure_networks(
                thin, EXAMPLE, Conditions(runtime, batch, 1)
            )
        images = torch.randn(batch, 3, 32, 32)
        with torch_threads(1):
            turned = [channels_last(graph.prune(genome), images) for genome in genomes.values()]
            columns[f"torch, channels last, batch {batch}"] = in_turns(turned)
    with torch_threads(1):
        steps = [training_step(graph.prune(genome)) for genome in genomes.values()]
        columns["training step"] = in_turns(steps, 2)
    print("a search here takes multiples of", max(find_multiples().values()), find_multiples())
    print("| " + " | ".join(["resnet56", "FLOPs", *(f"{name}, ms" for name in columns)]) + " |")
    print("|---|---|" + "---|" * len(columns))
    for place, (name, genome) in enumerate(genomes.items()):
        share = graph.flops(genome) / graph.flops(graph.full_genome())
        cells = [f"{1000 * times[place]:.1f} ({times[place] / times[0]:.2f}x)" for times in columns.values()]
        print(f"| {name} | {share:.1%} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
