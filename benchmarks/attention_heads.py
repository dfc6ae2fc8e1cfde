"""How much of networks with attention can go with `prune_linear`, and how much with `prune_heads` as well.

    python benchmarks/attention_heads.py                         # all, a row each as they finish
    python benchmarks/attention_heads.py timm/deit_tiny_patch16_224

The networks have random weights and are read at 64 pixels, as for coverage.py, whose packages are needed.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from coverage_networks import NETWORKS, Network
from coverage_trial import KEEP, multiply_adds, trains
from torch import nn

from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph

SMALL = {"img_size": 64}
NAMED = {
    each.key: each
    for each in (
        NETWORKS["torchvision/vit_b_16"],
        Network("timm", "deit_tiny_patch16_224", options=SMALL),
        NETWORKS["torchvision/swin_t"],
        Network("timm", "swin_tiny_patch4_window7_224", options=SMALL),
        NETWORKS["timm/mobilevit_s"],
    )
}
QUERIES = ("qkv", "in_proj_weight")
COLUMNS = ("network", "heads", "that can go", "build", "proof", "least FLOPs, MLPs alone", "with heads")


def heads_of(model: nn.Module) -> int:
    """How many heads a network has, by what its modules say."""
    attention = [module for module in model.modules() if any(hasattr(module, name) for name in QUERIES)]
    return sum(int(module.num_heads) for module in attention)


def row(network: Network) -> list[str]:
    """One network with both options, with three proven cuts and a step of training."""
    torch.manual_seed(0)
    model, example = network.make(), network.example()
    start = time.process_time()  # of the processor, so that other work on the machine does not count
    graph = ChannelGraph(model, example, prune_linear=True, prune_heads=True)
    seconds = time.process_time() - start
    generator = np.random.default_rng(0)
    genomes = [generator.random(graph.num_genes) < share for share in KEEP]
    proofs = [graph.verify(genome) for genome in genomes]
    exact = all(graph.flops(genome) == multiply_adds(graph.prune(genome), network) for genome in genomes)
    sound = exact and all(proof.holds for proof in proofs)
    sound = sound and trains(graph.prune(genomes[1]), network) is True
    heads = head_genes(graph)
    nothing, full = ~graph.full_genome(), graph.full_genome()
    least = [graph.flops(genome) / graph.flops(full) for genome in (nothing | heads, nothing)]
    return [
        f"`{network.key}`",
        str(heads_of(model)),
        str(int(heads.sum())),
        f"{seconds:.1f} s",
        f"{max(proof.difference for proof in proofs):.0e}" if sound else "**no**",
        *(f"{100 * share:.1f} %" for share in least),
    ]


def head_genes(graph: ChannelGraph) -> Genome:
    """The genes of heads: those of the layers that make queries."""
    heads = ~graph.full_genome()
    for group in graph.groups:
        if any(layer.endswith(QUERIES) for layer in group.layers):
            heads[list(group.genes)] = True
    return heads


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    unknown = [key for key in sys.argv[1:] if key not in NAMED]
    if unknown:
        sys.exit(f"unknown network {unknown[0]!r}; known: {', '.join(NAMED)}")
    sys.stdout.write(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n")
    for key in sys.argv[1:] or NAMED:
        sys.stdout.write(f"| {' | '.join(row(NAMED[key]))} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
