"""Auto-balanced filter pruning: train the weights of filters to remove towards zero, then cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.comparison.problem import Method, Network, Problem, Target, register_method
from deeppruning.errors import Diverged
from deeppruning.genome import Genome, candidate_seed
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.cutting import cut
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance import Scores
from deeppruning.searching.importance.criteria import L1Norm
from deeppruning.searching.importance.orders import meet_flops, prunable, uniform_order
from deeppruning.searching.task import Classification
from deeppruning.training.loop import fit

STRENGTH = 0.05


@register_method
class AutoBalanced(Method):
    """Ding et al. 2018: l2 regularisation of two signs moves the function of filters to those that stay.

    In every layer the filters with the smallest l1-norms are removed. Before, they are pulled towards zero in
    training, small ones harder, and the others are pushed away from it, large ones harder; the two are scaled
    to cancel out, here at every step. The source trains for many epochs with a weak pull; here it is the
    number of epochs of the fine-tuning that follows, on the same data, with a stronger pull (0.05), so that
    this method trains twice as long as the others: the time is in the table.
    """

    name = "auto-balanced"
    kind = "regularisation"

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network regularised and cut separately for each target, because the filters to remove differ."""
        graph, scores = problem.graph, L1Norm().scores(problem.evidence)
        order = uniform_order(graph, scores)
        genomes = [meet_flops(graph, graph.full_genome(), order, target.flops) for target in targets]
        factors = [balance_factors(graph, scores, genome) for genome in genomes]
        return problem.map(train_balanced, list(zip(genomes, factors, strict=True)))


def balance_factors(graph: ChannelGraph, scores: Scores, genome: Genome) -> Scores:
    """The pull on each gene of norm m: 1 + ln(t/m) if it is removed, else -1 - ln(m/t).

    The threshold t of a layer is the largest norm to remove; a layer that loses nothing is left alone.
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


def train_balanced(context: Context, item: tuple[Genome, Scores]) -> Network:
    """Train the whole network with the penalty, then cut it; one that diverges has failed."""
    genome, factors = item
    task, graph = context.task, context.graph
    assert isinstance(task, Classification)
    assert task.train is not None
    whole = graph.prune(graph.full_genome()).to(task.device)
    seed = candidate_seed(context.seed, genome)
    planned = task.planned(task.plan(whole, seed=seed)).tuning
    assert planned is not None
    options = replace(planned, seed=seed)
    try:
        fit(whole, task.train, options, device=task.device, penalty=TwoSigned.of(graph, whole, factors))
    except Diverged as diverged:
        return Network(genome, failure=str(diverged))
    return Network(genome, dict(cut(whole.cpu(), graph.recipe(genome)).state_dict()))


@dataclass(frozen=True, eq=False)
class TwoSigned:
    """The penalty: factor times squared norm, summed over filters, with pushes scaled to cancel the pulls."""

    graph: ChannelGraph
    factors: dict[str, Tensor]  # layer -> the factor of each filter, as a column

    @classmethod
    def of(cls, graph: ChannelGraph, network: nn.Module, factors: Scores) -> "TwoSigned":
        """The penalty of this network for these factors, one per gene."""
        extended = np.append(factors, 0.0)  # the gene -1, of filters that always stay, reads the 0 at the end
        layers = graph.layer_genes()
        columns = {
            name: torch.from_numpy(extended[np.array(layers[name])]).to(filters).unsqueeze(1)
            for name, filters in graph.filters(network).items()
        }
        return cls(graph, columns)

    def __call__(self, network: nn.Module) -> Tensor:
        """The penalty for the current weights: always 0 in value, with the gradients of both sides.

        The balance follows the weights; otherwise pushed weights would grow without limit.
        """
        filters = self.graph.filters(network)
        terms = [(factor * filters[name].square()).flatten() for name, factor in self.factors.items()]
        all_terms = torch.cat(terms)
        pull, push = all_terms.clamp(min=0).sum(), all_terms.clamp(max=0).sum()
        balance = (pull.detach() / -push.detach()).nan_to_num(0.0, posinf=0.0)
        return STRENGTH * (pull + balance * push)
