"""The strategies: they propose genomes, learn their objectives, and pick knee, heavy and light.

Read in this order: `generations` (ask and tell), `strategy` (the paper's, with `selection`), then ours:
`space` (widths and orders), `seeds`, `operators`, `archive`, `learning`, `guided`.
"""

from deeppruning.evolution.generations import Individual, Origin
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.space import Space
from deeppruning.evolution.strategy import EvolutionStrategy, flip, recombine

__all__ = [
    "EvolutionStrategy",
    "GuidedStrategy",
    "Individual",
    "Origin",
    "Picks",
    "Space",
    "flip",
    "recombine",
    "select",
]
