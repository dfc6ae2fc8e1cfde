"""ThiNet: keep the filters from which the next layer can be reconstructed best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.data.batches import Batches
from deeppruning.genome import Genome
from deeppruning.searching.importance.budget import meet_flops
from deeppruning.searching.importance.orders import prunable, uniform_order
from deeppruning.system.device import precision_of
from deeppruning.training.evaluate import mode

Matrix = NDArray[np.float64]
CONVOLUTIONS: dict[type[nn.Module], Any] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d, nn.Conv3d: F.conv3d}


@register_method
class ThiNet(Method):
    """Luo et al. 2017: a filter matters as far as the next layer's sums need it.

    At random places of the next layer, each of its inputs contributes one number to the sum. Greedily,
    the input joins the removed ones that leaves their joint contribution smallest; then the next
    layer's weights are scaled, input by input, to make up for what is gone (least squares). The source
    goes layer by layer with an epoch or two of fine-tuning after each; here all layers are cut at once
    from the trained network and fine-tuned once, like every other method, and the least squares are
    drawn a little towards leaving weights as they are. Filters read by several
    layers, as in a ResNet, are judged by all of them together.
    """

    name = "thinet"
    kind = "reconstruction, regularisation"
    refittable = True  # the refit then takes the place of the scaling
    images = 200
    filters = 8  # of every reading layer, drawn at random
    places = 10  # of every image and filter, drawn at random

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The same share of every layer, by the greedy order, with the scaled weights."""
        readings = self._observe(problem)
        scores = np.zeros(problem.graph.num_genes)
        for genes in prunable(problem.graph):
            listed = np.array(genes)
            product = sum((reading.product(listed) for reading in readings), np.zeros((len(genes),) * 2))
            scores[listed[greedy_order(product)]] = np.arange(len(genes))
        order = uniform_order(problem.graph, scores)
        full = problem.graph.full_genome()
        genomes = [meet_flops(problem.graph, full, order, target.flops) for target in targets]
        return [Network(genome, self._scaled(problem, readings, genome)) for genome in genomes]

    def _observe(self, problem: Problem) -> "list[Reading]":
        graph, device = problem.graph, problem.device
        network = graph.prune(graph.full_genome()).to(device)
        generator = torch.Generator().manual_seed(problem.seed)
        readings = []
        for name, genes in reading_layers(problem, network):
            reading = Reading(name, genes, self.filters, self.places, generator)
            network.get_submodule(name).register_forward_hook(partial(reading.see))
            readings.append(reading)
        some = problem.sample.subset(torch.randperm(len(problem.sample), generator=generator)[: self.images])
        with mode(network, training=False), torch.inference_mode():
            for batch, _ in Batches(some, 50, device=device, precision=precision_of(network)):
                network(batch)
        return [reading for reading in readings if reading.rows]

    def _scaled(self, problem: Problem, readings: "list[Reading]", genome: Genome) -> dict[str, Tensor]:
        thin = problem.graph.prune(genome).cpu()
        for reading in readings:
            scales = reading.scales(genome)
            kept = np.append(genome, True)[reading.genes]
            weight = thin.get_submodule(reading.name).get_parameter("weight")
            if weight.shape[1] != kept.sum():
                continue  # a layer that is run on all channels, re-indexed, keeps its weights
            factors = torch.tensor(scales[kept], dtype=weight.dtype).view(1, -1, *[1] * (weight.ndim - 2))
            weight.data.mul_(factors)
        return dict(thin.state_dict())


def reading_layers(problem: Problem, network: nn.Module) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Layers that sum over prunable inputs, with the gene of each input."""
    for name, places in problem.graph.parameter_genes().items():
        module_name, _, parameter = name.rpartition(".")
        module = network.get_submodule(module_name)
        sums = isinstance(module, (*CONVOLUTIONS, nn.Linear)) and getattr(module, "groups", 1) == 1
        if parameter == "weight" and sums and 1 in places and (places[1] >= 0).any():
            yield module_name, places[1]


def greedy_order(product: Matrix) -> list[int]:
    """The order in which inputs join the removed ones, each time the one that keeps their sum smallest.

    `product[i, j]` is the scalar product of the contributions of inputs i and j.

    >>> greedy_order(np.array([[4.0, -4.0, 0.0], [-4.0, 5.0, 0.0], [0.0, 0.0, 1.5]]))
    [2, 0, 1]
    """
    left = list(range(len(product)))
    removed: list[int] = []
    together = np.zeros(len(product))
    while left:
        growth = product.diagonal()[left] + 2.0 * together[left]
        chosen = left.pop(int(np.argmin(growth)))
        removed.append(chosen)
        together += product[chosen]
    return removed


def _convolution(layer: nn.Module) -> Any:
    return next(function for kind, function in CONVOLUTIONS.items() if isinstance(layer, kind))


@dataclass
class Reading:
    """What each input of one layer contributes to its sums, at places drawn at random."""

    name: str
    genes: NDArray[np.int64]  # of the layer's inputs
    filters: int
    places: int
    generator: torch.Generator
    rows: list[Matrix] = field(default_factory=list)

    def see(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        """A forward hook: the contributions to some sums, as rows of one number an input."""
        weight, x = module.get_parameter("weight"), inputs[0]
        for chosen in torch.randperm(len(weight), generator=self.generator)[: self.filters].tolist():
            if isinstance(module, nn.Linear):
                found = (x * weight[chosen]).flatten(0, -2)
            else:
                layer: Any = module
                each = _convolution(layer)(
                    x,
                    weight[chosen].unsqueeze(1),
                    stride=layer.stride,
                    padding=layer.padding,
                    dilation=layer.dilation,
                    groups=x.shape[1],
                )
                found = each.flatten(2).transpose(1, 2).flatten(0, 1)
            some = torch.randint(len(found), (self.places * len(x),), generator=self.generator)
            self.rows.append(found[some.to(found.device)].double().cpu().numpy())

    def product(self, genes: NDArray[np.int64]) -> Matrix:
        """Scalar products of the contributions of these genes, the layer's whole sums having norm 1."""
        gram = self._gram
        place = {int(gene): index for index, gene in enumerate(genes)}
        into = np.zeros((len(genes), len(self.genes)))
        for column, gene in enumerate(self.genes.tolist()):
            if gene in place:
                into[place[gene], column] = 1.0
        return np.asarray(into @ gram @ into.T) / max(float(gram.sum()), 1e-12)

    def scales(self, genome: Genome) -> Matrix:
        """A factor for each input that is left, so that together they come closest to the whole sums."""
        kept = np.append(genome, True)[self.genes]
        gram = self._gram
        # A little pull towards 1 keeps inputs that are never seen, or always together, as they are.
        pull = 0.01 * max(float(gram.diagonal().mean()), 1e-12) * np.eye(int(kept.sum()))
        inner = gram[np.ix_(kept, kept)]
        scales = np.ones(len(self.genes))
        scales[kept] = np.linalg.solve(inner + pull, gram[kept].sum(axis=1) + pull.sum(axis=1))
        return scales

    @cached_property
    def _gram(self) -> Matrix:
        rows = np.concatenate(self.rows)
        return np.asarray(rows.T @ rows)
