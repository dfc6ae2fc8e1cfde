"""Candidates an hour of the search against a plain sequential script, and the search's own overhead.

Both evaluate the same genomes as the paper does: brief SGD on a class-balanced sample, then the error
on it. Ours: cut networks in a pool of processes. Plain: the usual script in one process with all
threads, which masks filters (and masks them again after each step) and feeds itself by a DataLoader.
The two take turns, a batch of genomes each, so that a busy machine disturbs both alike.

Example: python benchmarks/throughput.py --model resnet56 --sample 200 --candidates 20 --data-dir data
"""

import argparse
import os
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from deeppruning.backends import PoolBackend
from deeppruning.config import SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample
from deeppruning.errors import DeepPruningError
from deeppruning.evolution import flip
from deeppruning.genome import Genome, Population
from deeppruning.graph import ChannelGraph
from deeppruning.models import create_model
from deeppruning.searching.candidate import Context, evaluate_candidate
from deeppruning.searching.task import Classification
from deeppruning.training.evaluate import evaluate
from deeppruning.training.loop import fit

TURN = 10  # candidates of one sort before those of the other; a search waits only once in 20


def images(size: int, data_dir: Path | None) -> tuple[ImageSet, str]:
    """A sample of CIFAR-10, or random images of its shape where it is not at hand."""
    try:
        return balanced_sample(load_data("cifar10", data_dir=data_dir).train, size, 0), "CIFAR-10"
    except DeepPruningError:
        pixels = torch.randint(256, (size, 3, 32, 32), dtype=torch.uint8)
        labels = torch.arange(size) % 10
        names = tuple(map(str, range(10)))
        return ImageSet(pixels, labels, names, Normalization((0.5,) * 3, (0.25,) * 3)), "random images"


def population(genes: int, count: int) -> Population:
    """Genomes as a search meets them: mutated once to ten times over."""
    rng = np.random.default_rng(0)
    genomes = np.ones((count, genes), dtype=np.bool_)
    for row in range(count):
        for _ in range(1 + row % 10):
            genomes[row] = flip(genomes[row : row + 1], 0.1, rng)[0]
    return genomes


def filter_masks(graph: ChannelGraph, model: nn.Module, genome: Genome) -> list[tuple[Tensor, Tensor]]:
    """Weights with the mask of their filters: 0 silences one."""
    extended = np.append(graph.repair(genome), True)
    weights = {f"{name}.weight": genes for name, genes in graph.layer_genes().items()}
    masks: list[tuple[Tensor, Tensor]] = []
    for name, parameter in model.named_parameters():
        if name in weights:
            kept = torch.from_numpy(extended[np.array(weights[name])].astype(np.float32))
            masks.append((parameter, kept.view(-1, *[1] * (parameter.ndim - 1))))
    return masks


def plain_evaluation(
    model: nn.Module, graph: ChannelGraph, genome: Genome, data: ImageSet, config: SearchConfig
) -> float:
    """One candidate as a plain script would evaluate it."""
    masked = deepcopy(model)
    masks = filter_masks(graph, masked, genome)
    floats = normalize(data.images, data.normalization).contiguous()
    loader = DataLoader(TensorDataset(floats, data.labels), config.eval_batch_size, shuffle=True)
    optimizer = torch.optim.SGD(masked.parameters(), lr=config.eval_lr, momentum=config.eval_momentum)
    criterion = nn.CrossEntropyLoss()
    masked.train()
    for _ in range(config.eval_epochs):
        for batch, labels in loader:
            with torch.no_grad():
                for weight, mask in masks:
                    weight.mul_(mask)
            optimizer.zero_grad()
            criterion(masked(batch), labels).backward()
            optimizer.step()
    masked.eval()
    wrong = 0
    with torch.no_grad():
        for batch, labels in loader:
            wrong += int((masked(batch).argmax(1) != labels).sum())
    return wrong / len(data)


def shares(
    context: Context, genomes: Population, data: ImageSet, config: SearchConfig
) -> tuple[float, float, float]:
    """Shares of an evaluation's processor time: training steps, error on the sample, the cut (one thread)."""
    torch.set_num_threads(1)
    spent = np.zeros(3)
    for genome in genomes:
        start = time.process_time()
        thin = context.graph.prune(genome)
        cut = time.process_time()
        fit(thin, data, config.training(0))
        trained = time.process_time()
        evaluate(thin, data)
        spent += (trained - cut, time.process_time() - trained, cut - start)
    steps, error, cutting = spent / spent.sum()
    return float(steps), float(error), float(cutting)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet56")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data-dir", type=Path)
    args = parser.parse_args()
    data, source = images(args.sample, args.data_dir)
    config = SearchConfig.paper(sample=args.sample, eval_epochs=args.epochs)
    model = create_model(args.model)
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32))
    genomes = graph.repair(population(graph.num_genes, args.candidates))
    context = Context(graph, Classification(data, config), "flops", torch.zeros(1, 3, 32, 32), 0)
    threads = torch.get_num_threads()
    ours = plain = busy = 0.0
    with PoolBackend(workers=args.workers).open(evaluate_candidate, context) as session:
        list(session.map(enumerate(genomes[: args.workers])))  # start the workers, warm up
        for first in range(0, len(genomes), TURN):
            turn = genomes[first : first + TURN]
            start = time.perf_counter()
            busy += sum(outcome.seconds for outcome in session.map(enumerate(turn)))
            ours += time.perf_counter() - start
            start = time.perf_counter()
            for genome in turn:
                plain_evaluation(model, graph, genome, data, config)
            plain += time.perf_counter() - start
    torch.set_num_threads(threads)
    cut = 100 * (1 - graph.flops(genomes).mean() / graph.flops(graph.full_genome()))
    print(f"{args.model}, {args.candidates} candidates ({cut:.0f} % of FLOPs cut on average), {source},")
    print(f"{args.sample} images, {args.epochs} epochs, {args.workers} workers against {threads} threads")
    print(f"ours   {3600 * len(genomes) / ours:8.1f} candidates an hour")
    print(f"plain  {3600 * len(genomes) / plain:8.1f} candidates an hour")
    print(f"ratio  {plain / ours:8.2f}")
    print(f"workers idle or waiting for work: {100 * (1 - busy / (ours * args.workers)):.1f} % of their time")
    steps, error, cutting = shares(context, genomes[:3], data, config)
    print(f"of an evaluation: training steps {steps:.1%}, error on the sample {error:.1%}, cut {cutting:.1%}")


if __name__ == "__main__":
    main()
