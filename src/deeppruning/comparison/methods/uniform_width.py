"""The uniform-width network: no selection, no inherited weights, only the same training."""

from collections.abc import Sequence

import numpy as np

from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.genome import candidate_seed
from deeppruning.searching.importance.budget import meet_flops
from deeppruning.searching.importance.orders import uniform_order
from deeppruning.searching.task import redraw_weights


@register_method
class UniformWidth(Method):
    """The floor: every layer made thinner by the same share, its weights drawn anew, trained like the others.

    Liu et al. 2019 ask whether pruning is worth more than that. Their networks are trained at full
    length; here, as everywhere in a comparison, the training is that of the fine-tuning.
    """

    name = "uniform-width"
    kind = "floors"

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The first filters of every layer, which after the draw are as good as any."""
        graph = problem.graph
        order = uniform_order(graph, -np.arange(graph.num_genes, dtype=np.float64))
        networks = []
        for target in targets:
            genome = meet_flops(graph, graph.full_genome(), order, target.flops)
            thin = graph.prune(genome)
            redraw_weights(thin, candidate_seed(problem.seed, genome))
            networks.append(Network(genome, dict(thin.state_dict())))
        return networks
