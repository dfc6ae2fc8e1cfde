"""The evolution strategy: proposes genomes, learns their objectives, keeps knee, heavy and light."""

from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.strategy import EvolutionStrategy, Individual
from deeppruning.evolution.variation import flip, recombine

__all__ = ["EvolutionStrategy", "Individual", "Picks", "flip", "recombine", "select"]
