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
COLUMNS = ("network", "heads", "that can go", "build", "proof", "least FLOPs, MLPs alone", "with heads")


def heads_of(model: nn.Module) -> int:
    """How many heads a network has, by what its modules say."""
    counts = [getattr(module, "num_heads", 0) for module in model.modules() if _attends(module)]
    return sum(count for count in counts if isinstance(count, int))


def _attends(module: nn.Module) -> bool:
    return any(hasattr(module, name) for name in ("qkv", "in_proj_weight"))


def row(network: Network) -> list[str]:
    """One network with both options, with three proven cuts and a step of training."""
    torch.manual_seed(0)
    model, example = network.make(), network.example()
    without = ChannelGraph(model, example, prune_linear=True)
    start = time.process_time()
    graph = ChannelGraph(model, example, prune_linear=True, prune_heads=True)
    seconds = time.process_time() - start
    generator = np.random.default_rng(0)
    genomes = [generator.random(graph.num_genes) < share for share in KEEP]
    proofs = [graph.verify(genome) for genome in genomes]
    exact = all(graph.flops(genome) == multiply_adds(graph.prune(genome), network) for genome in genomes)
    sound = (
        exact and all(proof.holds for proof in proofs) and trains(graph.prune(genomes[1]), network) is True
    )
    least = [each.flops(~each.full_genome()) / each.flops(each.full_genome()) for each in (without, graph)]
    return [
        f"`{network.key}`",
        str(heads_of(model)),
        str(graph.num_genes - without.num_genes),
        f"{seconds:.1f} s",
        f"{max(proof.difference for proof in proofs):.0e}" if sound else "**no**",
        *(f"{100 * share:.1f} %" for share in least),
    ]


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
