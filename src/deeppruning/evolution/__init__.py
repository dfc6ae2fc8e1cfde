"""The strategies: they propose genomes, learn their objectives, and keep knee, heavy and light.

Read in this order: `generations` (asking, telling, numbers), `strategy` (the paper's, with `variation` and
`selection`), then ours: `space` (widths and orders), `seeds` with `balance`, `operators` with `chances`,
`archive`, `steering`, `guided`.
"""

from deeppruning.evolution.generations import Individual, Origin
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.space import Space
from deeppruning.evolution.strategy import EvolutionStrategy
from deeppruning.evolution.variation import flip, recombine

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
