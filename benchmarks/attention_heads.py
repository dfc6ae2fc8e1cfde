"""How much of a transformer can go with `prune_linear`, and how much with `prune_heads` as well.

    python benchmarks/attention_heads.py deit_tiny_patch16_224 mobilevit_s

Networks of timm with random weights, at their own image size. Two random cuts of each are verified. Seconds
are those of the processor, for building the graph and for the proofs.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import timm
import torch

from deeppruning.graph import ChannelGraph


def main() -> None:
    """One line for each network, without heads and with them."""
    for name in sys.argv[1:] or ["deit_tiny_patch16_224", "mobilevit_s"]:
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False).eval()
        example = torch.randn(1, *model.pretrained_cfg["input_size"])
        for heads in (False, True):
            start = time.process_time()
            graph = ChannelGraph(model, example, prune_linear=True, prune_heads=heads)
            least = graph.flops(graph.repair(~graph.full_genome())) / graph.flops(graph.full_genome())
            draw = np.random.default_rng(0)
            genomes = [graph.repair(draw.random(graph.num_genes) < kept) for kept in (0.8, 0.5)]
            proven = all(bool(graph.verify(genome)) for genome in genomes)
            print(
                f"{name}, {'with' if heads else 'without'} heads: {graph.num_genes:,} genes, least FLOPs "
                f"{least:.1%}, proven: {proven}, {time.process_time() - start:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
