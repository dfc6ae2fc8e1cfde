"""One network through the channel graph: build it, prove cuts of it, count and train a thin network."""

from __future__ import annotations

import collections
import resource
import time
import warnings
from typing import Any

import numpy as np
import torch
from coverage_networks import NETWORKS, Network
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

Row = dict[str, Any]
KEEP = (0.9, 0.5, 0.1)  # the share of bits on in the three random genomes of the proof


def ours(network: Network) -> Row:
    """What the channel graph of DeepPruningES makes of the network."""
    from deeppruning.graph import ChannelGraph

    model = network.make()
    start = time.process_time()  # of the processor, so that other work on the machine does not count
    graph = ChannelGraph(model, network.example())
    row: Row = {"seconds": time.process_time() - start, "genes": graph.num_genes}
    row["filters"] = sum(group.filters for group in graph.groups)
    row["prunable"] = sum(group.filters for group in graph.groups if group.prunable)
    frozen: collections.Counter[str] = collections.Counter()
    for group in graph.groups:
        if not group.prunable:
            frozen[group.reasons[0] if group.reasons else "no reason given"] += group.filters
    row["reasons"] = frozen.most_common(6)
    row["notes"] = graph.notes
    generator = np.random.default_rng(0)
    genomes = [generator.random(graph.num_genes) < share for share in KEEP]
    proofs = [graph.verify(genome) for genome in genomes]
    row["difference"] = max(proof.difference for proof in proofs)
    row["proof"] = all(proof.holds for proof in proofs)
    row["flops_exact"] = all(
        graph.flops(genome) == multiply_adds(graph.prune(genome), network) for genome in genomes
    )
    row["flops_at_half"] = graph.flops(genomes[1]) / graph.flops(graph.full_genome())
    row["trains"] = trains(graph.prune(genomes[1]), network)
    row |= branches(model, network)
    return row


def branches(model: nn.Module, network: Network) -> Row:
    """How many sets of filters may go altogether, and the proof with as many gone as may be at once."""
    from deeppruning.graph import ChannelGraph

    graph = ChannelGraph(model, network.example(), depth=True)
    removable = [group for group in graph.groups if group.removable]
    row: Row = {"branches": len(removable), "branches_proven": True}
    if removable:
        genome = np.random.default_rng(0).random(graph.num_genes) < KEEP[1]
        for group in removable:
            genome[list(group.genes)] = False
        exact = graph.flops(genome) == multiply_adds(graph.prune(genome), network)
        row["branches_proven"] = graph.verify(genome).holds and exact
        row["branches_gone"] = sum(not graph.repair(genome)[list(group.genes)].any() for group in removable)
    return row


def multiply_adds(model: nn.Module, network: Network) -> int:
    """What torch's own counter finds, which counts a multiply-add as two, fused attention not at all."""
    counter = FlopCounterMode(display=False)
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model.eval()(network.example())
    return counter.get_total_flops() // 2


def trains(model: nn.Module, network: Network) -> bool | str:
    """One step of SGD in training mode."""
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    try:
        outputs = tree_leaves(model(network.example(batch=2)))
        torch.stack([output.square().mean() for output in outputs if output is not None]).sum().backward()
        optimizer.step()
    except Exception as error:
        return short(error)
    return True


def short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def run(tool: str, key: str, seconds: int) -> Row:
    """One trial in the process at hand, which is stopped after so many seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if tool == "ours":
        trial = ours
    else:
        from coverage_rival import torch_pruning as trial
    try:
        return trial(NETWORKS[key])
    except Exception as error:
        return {"error": short(error)}
