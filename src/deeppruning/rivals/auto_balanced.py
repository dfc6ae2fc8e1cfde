"""Auto-balanced filter pruning: train what will go towards zero and what stays away from it, then cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut import cut
from deeppruning.graph.plan import Bits
from deeppruning.rivals.criteria import L1Norm
from deeppruning.rivals.flops import meet_flops
from deeppruning.rivals.problem import Method, Network, Problem, Scores, Target
from deeppruning.rivals.ranking import prunable, uniform_order
from deeppruning.search.candidate import Context, candidate_seed
from deeppruning.search.task import Classification
from deeppruning.training.loop import fit

STRENGTH = 0.05


class AutoBalanced(Method):
    """Ding et al. 2018: l2 regularisation of two signs moves what filters do to those that will stay.

    In every layer the filters with the smallest l1-norms are to go. While training, they are pulled
    towards zero, the smaller the harder, and the others are pushed away from it, the larger the harder;
    the two pulls are balanced to cancel out at the start. Then the first are cut. The source trains
    for many epochs with a weak pull; here it is as many epochs of the same data as the fine-tuning
    that follows has, with a stronger one (0.05), which makes this method twice as long to train as the
    others: the time is in the table.
    """

    name = "auto-balanced"

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network regularised and cut for each target by itself, because each has its own filters to go."""
        graph, scores = problem.graph, L1Norm().scores(problem)
        order = uniform_order(graph, scores)
        genomes = [meet_flops(graph, graph.full_genome(), order, target.flops) for target in targets]
        factors = [balance_factors(graph, scores, genome) for genome in genomes]
        weights = problem.map(train_balanced, list(zip(genomes, factors, strict=True)))
        return [Network(genome, tensors) for genome, tensors in zip(genomes, weights, strict=True)]


def balance_factors(graph: ChannelGraph, scores: Scores, genome: Bits) -> Scores:
    """The pull on each gene: 1 + ln(t/m) if it goes, -1 - ln(m/t) if it stays; m its norm, t the threshold.

    The threshold of a layer is the largest norm that goes; a layer that loses nothing is left alone.
    """
    factors = np.zeros(graph.num_genes)
    norms = np.maximum(scores, 1e-12)
    for genes in prunable(graph):
        listed = np.array(genes)
        going = listed[~genome[listed]]
        if len(going):
            threshold = norms[going].max()
            pull = 1.0 + np.abs(np.log(threshold / norms[listed]))
            factors[listed] = np.where(genome[listed], -pull, pull)
    return factors


def train_balanced(context: Context, item: tuple[Bits, Scores]) -> dict[str, Tensor]:
    """Train the whole network with the pulls, then cut it: the thin weights."""
    genome, factors = item
    task, graph = context.task, context.graph
    assert isinstance(task, Classification)
    assert task.train is not None
    assert task.tuning is not None
    whole = graph.prune(graph.full_genome()).to(task.device)
    options = replace(task.tuning, seed=candidate_seed(context.seed, genome))
    fit(whole, task.train, options, device=task.device, penalty=TwoSigned.of(graph, whole, factors))
    return dict(cut(whole.cpu(), graph.recipe(genome)).state_dict())


@dataclass(frozen=True, eq=False)
class TwoSigned:
    """The regulariser: factor x squared norm, summed over filters; pulls and pushes cancel at the start."""

    factors: dict[str, Tensor]  # layer -> the factor of each filter, shaped to be multiplied with its weights

    @classmethod
    def of(cls, graph: ChannelGraph, network: nn.Module, factors: Scores) -> "TwoSigned":
        """Balance the pushes against the pulls for the weights as they are."""
        by_layer = {}
        extended = np.append(factors, 0.0)  # a filter that always stays reads the 0 at the end
        parameters = graph.parameter_genes()
        for name in graph.layer_genes():
            layer = network.get_submodule(name)
            weight = layer.get_parameter("weight")
            filters = 1 if getattr(layer, "transposed", False) else 0
            genes = parameters.get(f"{name}.weight", {}).get(filters)
            if genes is not None:
                shape = [-1 if place == filters else 1 for place in range(weight.ndim)]
                by_layer[name] = torch.from_numpy(extended[genes]).to(weight).view(shape)
        terms = torch.cat([term.detach().flatten() for term in cls(by_layer)._terms(network)])
        pull, push = float(terms.clamp(min=0).sum()), -float(terms.clamp(max=0).sum())
        balance = pull / push if push > 0 else 0.0
        return cls({name: torch.where(v < 0, v * balance, v) for name, v in by_layer.items()})

    def _terms(self, network: nn.Module) -> list[Tensor]:
        return [
            factor * network.get_submodule(name).get_parameter("weight").square()
            for name, factor in self.factors.items()
        ]

    def __call__(self, network: nn.Module) -> Tensor:
        """The penalty of the network as it is now."""
        return STRENGTH * torch.stack([term.sum() for term in self._terms(network)]).sum()
