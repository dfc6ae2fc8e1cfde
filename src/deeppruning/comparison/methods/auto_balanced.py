"""Auto-balanced filter pruning: train what will go towards zero and what stays away from it, then cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.errors import Diverged
from deeppruning.genome import Genome, candidate_seed
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.cutting import cut
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance.budget import meet_flops
from deeppruning.searching.importance.criteria import L1Norm
from deeppruning.searching.importance.orders import Scores, prunable, uniform_order
from deeppruning.searching.task import Classification
from deeppruning.training.loop import fit

STRENGTH = 0.05


@register_method
class AutoBalanced(Method):
    """Ding et al. 2018: l2 regularisation of two signs moves what filters do to those that will stay.

    In every layer the filters with the smallest l1-norms are to go. While training, they are pulled
    towards zero, the smaller the harder, and the others are pushed away from it, the larger the harder;
    the two are scaled to cancel out, here anew at every step. Then the first are cut. The source trains
    for many epochs with a weak pull; here it is as many epochs of the same data as the fine-tuning
    that follows has, with a stronger one (0.05), which makes this method twice as long to train as the
    others: the time is in the table.
    """

    name = "auto-balanced"
    kind = "reconstruction, regularisation"

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network regularised and cut for each target by itself, because each has its own filters to go."""
        graph, scores = problem.graph, L1Norm().scores(problem.evidence)
        order = uniform_order(graph, scores)
        genomes = [meet_flops(graph, graph.full_genome(), order, target.flops) for target in targets]
        factors = [balance_factors(graph, scores, genome) for genome in genomes]
        return problem.map(train_balanced, list(zip(genomes, factors, strict=True)))


def balance_factors(graph: ChannelGraph, scores: Scores, genome: Genome) -> Scores:
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


def train_balanced(context: Context, item: tuple[Genome, Scores]) -> Network:
    """Train the whole network with the pulls, then cut it; one that diverges has failed."""
    genome, factors = item
    task, graph = context.task, context.graph
    assert isinstance(task, Classification)
    assert task.train is not None
    assert task.tuning is not None
    whole = graph.prune(graph.full_genome()).to(task.device)
    options = replace(task.tuning, seed=candidate_seed(context.seed, genome))
    try:
        fit(whole, task.train, options, device=task.device, penalty=TwoSigned.of(graph, whole, factors))
    except Diverged as diverged:
        return Network(genome, failure=str(diverged))
    return Network(genome, dict(cut(whole.cpu(), graph.recipe(genome)).state_dict()))


@dataclass(frozen=True, eq=False)
class TwoSigned:
    """The regulariser: factor x squared norm, summed over filters, the pushes scaled to undo the pulls."""

    graph: ChannelGraph
    factors: dict[str, Tensor]  # layer -> the factor of each filter, as a column

    @classmethod
    def of(cls, graph: ChannelGraph, network: nn.Module, factors: Scores) -> "TwoSigned":
        """The regulariser of this network for these factors, one a gene."""
        extended = np.append(factors, 0.0)  # a filter that always stays reads the 0 at the end
        layers = graph.layer_genes()
        columns = {
            name: torch.from_numpy(extended[np.array(layers[name])]).to(filters).unsqueeze(1)
            for name, filters in graph.filters(network).items()
        }
        return cls(graph, columns)

    def __call__(self, network: nn.Module) -> Tensor:
        """The penalty of the network as it is now: always 0 in value, with the gradients of both sides.

        The balance follows the weights, or what is pushed would grow without end.
        """
        filters = self.graph.filters(network)
        terms = [(factor * filters[name].square()).flatten() for name, factor in self.factors.items()]
        all_terms = torch.cat(terms)
        pull, push = all_terms.clamp(min=0).sum(), all_terms.clamp(max=0).sum()
        balance = (pull.detach() / -push.detach()).nan_to_num(0.0, posinf=0.0)
        return STRENGTH * (pull + balance * push)
