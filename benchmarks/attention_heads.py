"""How much of a transformer can go with `prune_linear`, and how much with `prune_heads` as well.

    python benchmarks/attention_heads.py timm:deit_tiny_patch16_224 torchvision:vit_b_16

Networks of timm and torchvision with random weights, at their own image size. Two random cuts of each are
verified. Seconds are those of the processor, for building the graph and for the proofs.
"""

from __future__ import annotations

import importlib
import sys
import time

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.graph import ChannelGraph

NETWORKS = [
    "timm:deit_tiny_patch16_224",
    "timm:vit_base_patch16_224",
    "timm:swin_tiny_patch4_window7_224",
    "timm:mobilevit_s",
    "torchvision:vit_b_16",
    "torchvision:swin_t",
]


def make(spec: str) -> tuple[nn.Module, Tensor]:
    """The network LIBRARY:NAME, of timm if no library is named, and an image."""
    library, _, name = spec.rpartition(":")
    torch.manual_seed(0)
    size = (3, 224, 224)
    if library == "torchvision":
        model = importlib.import_module("torchvision.models").get_model(name, weights=None)
    else:
        model = importlib.import_module("timm").create_model(name, pretrained=False)
        size = model.pretrained_cfg["input_size"]
    return model.eval(), torch.randn(1, *size)


def main() -> None:
    """One line for each network, without heads and with them."""
    for spec in sys.argv[1:] or NETWORKS:
        model, example = make(spec)
        for heads in (False, True):
            start = time.process_time()
            graph = ChannelGraph(model, example, prune_linear=True, prune_heads=heads)
            least = graph.flops(graph.repair(~graph.full_genome())) / graph.flops(graph.full_genome())
            draw = np.random.default_rng(0)
            genomes = [graph.repair(draw.random(graph.num_genes) < kept) for kept in (0.8, 0.5)]
            proven = all(bool(graph.verify(genome)) for genome in genomes)
            print(
                f"{spec}, {'with' if heads else 'without'} heads: {graph.num_genes:,} genes, least FLOPs "
                f"{least:.1%}, proven: {proven}, {time.process_time() - start:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
