"""The strategy that a run's options name, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import USUAL_GENERATIONS, SearchConfig
from deeppruning.evolution.generations import Generations
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.strategy import EvolutionStrategy
from deeppruning.genome import Population
from deeppruning.objectives import as_objective
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.guide import Guide, load_or_make_guide
from deeppruning.searching.scan import Look

Price = Callable[[Population], NDArray[np.float64]]
ENDLESS = 10**9  # generations, of a search that is ended by its time


def make_strategy(
    context: Context, config: SearchConfig, history: History, look: Look, within: Price | None = None
) -> Generations:
    """The strategy for a network's genomes; its guide, if it has one, is recorded in the history.

    `within` is the share of its limits that a genome uses, for a search aimed at limits.
    """
    if config.strategy == "paper":
        return paper_strategy(context, config)
    guide = load_or_make_guide(context, history, look, config.threads)
    return guided_strategy(context, config, guide, within)


def paper_strategy(context: Context, config: SearchConfig) -> EvolutionStrategy:
    """The paper's strategy, on genomes repaired as the graph requires."""
    return EvolutionStrategy(
        context.graph.num_genes,
        offspring=config.offspring,
        generations=config.generations or USUAL_GENERATIONS,
        mutation=config.mutation,
        selection=config.selection,
        parents=config.parents,
        seed=config.seed,
        repair=context.graph.repair,
    )


def guided_strategy(
    context: Context, config: SearchConfig, guide: Guide, within: Price | None = None
) -> GuidedStrategy:
    """The guided strategy, on widths and orders."""
    objective = as_objective(context.objective)
    space = guide.space(context.graph, objective=objective, least=config.min_channels)
    return GuidedStrategy(
        space,
        offspring=config.offspring,
        generations=config.generations or ENDLESS,
        low=config.low,
        high=config.high,
        bins=config.bins,
        losses=guide.losses,
        focus=config.focus,
        limits=None if within is None else space.priced(within),
        planned=config.evaluations,
        seed=config.seed,
    )
