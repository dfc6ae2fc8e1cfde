"""The strategy that a run's options name, ready to be asked."""

from __future__ import annotations

from deeppruning.config import SearchConfig
from deeppruning.evolution.generations import Generations
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.strategy import EvolutionStrategy
from deeppruning.limits import Limits
from deeppruning.objectives import as_objective
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.guide import Guide, Look, load_or_make_guide
from deeppruning.targets.aiming import limited


def make_strategy(
    context: Context, config: SearchConfig, history: History, look: Look, limits: Limits | None = None
) -> Generations:
    """The strategy for a network's genomes; its guide, if it has one, is recorded in the history."""
    if config.strategy == "paper":
        return paper_strategy(context, config)
    guide = load_or_make_guide(context, history, look, config.threads)
    return guided_strategy(context, config, guide, limits or Limits())


def paper_strategy(context: Context, config: SearchConfig) -> EvolutionStrategy:
    """The paper's strategy, on genomes repaired as the graph requires."""
    return EvolutionStrategy(
        context.graph.num_genes,
        offspring=config.offspring,
        generations=config.generations,
        mutation=config.mutation,
        selection=config.selection,
        parents=config.parents,
        seed=config.seed,
        repair=context.graph.repair,
    )


def guided_strategy(
    context: Context, config: SearchConfig, guide: Guide, limits: Limits | None = None
) -> GuidedStrategy:
    """The guided strategy, on widths and orders."""
    objective = as_objective(context.objective)
    space = guide.space(context.graph, objective=objective, least=config.min_channels)
    return GuidedStrategy(
        space,
        offspring=config.offspring,
        generations=config.generations,
        low=config.low,
        high=config.high,
        bins=config.bins,
        losses=guide.losses,
        focus=config.focus,
        limits=None if limits is None else limited(space, context, limits),
        seed=config.seed,
    )
