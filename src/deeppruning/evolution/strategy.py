"""The paper's evolution strategy as ask and tell: bits are flipped and recombined, three are selected.

>>> flip(np.ones((1, 4), dtype=bool), 1.0, np.random.default_rng(0))
array([[False, False, False, False]])
>>> strategy = EvolutionStrategy(8, offspring=5, generations=3, seed=1)
>>> while not strategy.done:
...     genomes = strategy.ask()
...     kept = genomes.mean(axis=1)
...     strategy.tell(np.stack([1 - kept, kept], axis=1))
>>> strategy.evaluations
18
"""

from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError, unknown
from deeppruning.evolution.generations import Batch, Generations, Individual, Origin
from deeppruning.evolution.selection import Picks, select
from deeppruning.genome import Population


class EvolutionStrategy(Generations):
    """(3/rho + lambda) or (3/rho, lambda) strategy on bit strings with knee and boundary selection.

    The first generation is 3 + offspring copies of the full network with bits flipped; every later one
    is `offspring` genomes bred from the three picks. "plus" selects among the picks and the offspring,
    "comma" among the offspring only. Picks keep their objectives and are not asked for again. `repair` must
    be deterministic; it is applied before genomes are returned, so what is reported is what was evaluated.
    """

    def __init__(
        self,
        num_genes: int,
        *,
        offspring: int = 20,
        generations: int = 10,
        mutation: float = 0.1,
        selection: str = "plus",
        parents: int = 1,
        seed: int = 0,
        repair: Callable[[Population], Population] | None = None,
    ) -> None:
        if selection not in ("plus", "comma"):
            raise unknown("selection", selection, ("plus", "comma"))
        super().__init__(
            offspring=offspring,
            generations=generations,
            seed=seed,
            fewest=3 if selection == "comma" else 1,
        )
        for name, value in (("num_genes", num_genes), ("parents", parents)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if parents > 3:
            raise InputError(f"parents must be 1, 2 or 3 (there are three to choose from), got {parents}")
        if not 0.0 <= mutation <= 1.0:
            raise InputError(f"mutation must lie in [0, 1], got {mutation}")
        self.num_genes = num_genes
        self.mutation = mutation
        self.selection = selection
        self.parents = parents
        self._repair = repair
        self._population: tuple[Individual, ...] = ()
        self._picks: Picks[Individual] | None = None

    @property
    def picks(self) -> Picks[Individual]:
        """Knee, heavy and light of the last generation told."""
        if self._picks is None:
            raise InputError("nothing is selected before the first generation is told: call ask, then tell")
        return self._picks

    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None:
        """The picks without some individuals; None where no other is left."""
        left = [individual for individual in self._population if individual.id not in refused]
        if not left:
            return None
        chosen = select(np.array([individual.objectives for individual in left]))
        return Picks(*(left[row] for row in chosen))

    @property
    def population(self) -> tuple[Individual, ...]:
        """The individuals that the picks were selected from, by id; empty before the first generation."""
        return self._population

    def tell(self, objectives: NDArray[np.float64], scores: NDArray[np.float64] | None = None) -> None:
        """Select the three; scores are ignored, as the paper selects on the error.

        If no individual is left, an error is raised and the same generation can be told again.
        """
        batch, values = self._batch_with_objectives(objectives)
        newcomers = [
            Individual(number, self.generation, genome, float(error), float(cost))
            for number, genome, (error, cost) in zip(self.ids, batch.genomes, values, strict=True)
            if not (np.isnan(error) and np.isnan(cost))
        ]
        survivors = set(self._picks or ()) if self.selection == "plus" else set()
        # By id, so that a tie goes to the individual that was there first.
        population = sorted([*survivors, *newcomers], key=lambda individual: individual.id)
        if not population:
            raise InputError(
                f"none of the {len(values)} genomes of generation {self.generation} has objectives: there is "
                "nothing to select from"
            )
        self._population = tuple(population)
        self._picks = self.picks_without(())
        self._start_next_generation()

    def _propose(self, rng: np.random.Generator) -> Batch:
        """Bit flips of the recombined picks; of the original in the first generation."""
        parents = () if self._picks is None else tuple(sorted({pick.id for pick in self._picks}))
        genomes = self._flipped_genomes(rng)
        return Batch(genomes, [Origin("flip", parents) for _ in genomes])

    def _flipped_genomes(self, rng: np.random.Generator) -> Population:
        origin: Population
        if self._picks is None:
            origin = np.ones((3 + self.offspring, self.num_genes), dtype=np.bool_)
        else:
            three = np.stack([individual.genome for individual in self._picks])
            origin = recombine(three, self.parents, self.offspring, rng)
        genomes = flip(origin, self.mutation, rng)
        if self._repair is None:
            return genomes
        repaired = np.array(self._repair(genomes.copy()), dtype=np.bool_)
        if repaired.shape != genomes.shape:
            raise InputError(f"repair must keep the shape {genomes.shape}, but returned {repaired.shape}")
        return repaired


def flip(genomes: Population, probability: float, rng: np.random.Generator) -> Population:
    """A copy of the genomes in which every bit is inverted with the given probability."""
    return genomes ^ (rng.random(genomes.shape) < probability)


def recombine(parents: Population, rho: int, count: int, rng: np.random.Generator) -> Population:
    """`count` genomes, each from `rho` parents drawn without replacement; a gene comes from one of them."""
    num_parents, num_genes = parents.shape
    order = rng.permuted(np.tile(np.arange(num_parents), (count, 1)), axis=1)
    donors = np.take_along_axis(order, rng.integers(rho, size=(count, num_genes)), axis=1)
    return np.take_along_axis(parents, donors, axis=0)
