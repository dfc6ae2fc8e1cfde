"""The strategy that a run's options name, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import SearchConfig
from deeppruning.errors import DAMAGE, RunError
from deeppruning.evolution.generations import Individual, Origin
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.selection import Picks
from deeppruning.evolution.strategy import EvolutionStrategy
from deeppruning.genome import Population
from deeppruning.objectives import as_objective
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.guide import Guide, find_orders, read_scores, scanned_guide
from deeppruning.searching.scan import Look
from deeppruning.system.device import torch_threads

Price = Callable[[Population], NDArray[np.float64]]


class AskAndTell(Protocol):
    """Ask and tell, as the search needs it; see EvolutionStrategy and GuidedStrategy."""

    @property
    def done(self) -> bool: ...
    @property
    def generation(self) -> int: ...
    @property
    def ids(self) -> range: ...
    @property
    def origins(self) -> list[Origin]: ...
    @property
    def picks(self) -> Picks[Individual]: ...
    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None: ...
    def ask(self) -> Population: ...
    def follow(self, genomes: Population, made: Sequence[tuple[str, tuple[int, ...]]]) -> None: ...
    def tell(self, objectives: NDArray[np.float64], scores: NDArray[np.float64] | None = None) -> None: ...


def make_strategy(
    context: Context, config: SearchConfig, history: History, look: Look, within: Price | None = None
) -> AskAndTell:
    """The strategy for a network's genomes; what guides it is kept in the history, once found.

    `within` is the share of its limits that a genome uses, where the search is aimed at limits.
    """
    if config.strategy == "paper":
        return paper_strategy(context, config)
    guide = known_guide(context, config, history, look)
    return guided_strategy(context, config, guide, within)


def paper_strategy(context: Context, config: SearchConfig) -> EvolutionStrategy:
    """The paper's, on genomes repaired as the graph demands."""
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
    context: Context, config: SearchConfig, guide: Guide, within: Price | None = None
) -> GuidedStrategy:
    """Ours, on widths and orders."""
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
        limits=None if within is None else space.priced(within),
        seed=config.seed,
    )


def known_guide(context: Context, config: SearchConfig, history: History, look: Look) -> Guide:
    """The guide that a history keeps, or a new one, which it then keeps: first its orders, then its scan.

    Another processor rounds otherwise: a run that goes on elsewhere must not change its mind about orders.
    """
    table = history.get_fact(facts.GUIDE)
    try:
        if table is not None and table["losses"] is not None:
            return Guide.from_table(table)
        scores = None if table is None else read_scores(table)
    except DAMAGE as error:
        raise RunError(
            f"{history.path} holds no whole guide of the search ({error}); start a new run"
        ) from error
    with torch_threads(config.threads):
        if scores is None:
            scores = find_orders(context)
            history.set_fact(facts.GUIDE, {**Guide(scores, ()).to_table(), "losses": None})
        guide = scanned_guide(context, scores, look)
    history.set_fact(facts.GUIDE, guide.to_table())
    return guide
