"""The evolution strategy as ask and tell: it proposes genomes and learns their objectives.

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
from deeppruning.evolution.variation import flip, recombine
from deeppruning.genome import Population


class EvolutionStrategy(Generations):
    """(3/rho + lambda) or (3/rho, lambda) strategy on bit strings with knee and boundary selection.

    The first generation is 3 + offspring copies of the full network with bits flipped; every later one
    is `offspring` genomes bred from the three picks. "plus" selects among the picks and the offspring,
    "comma" among the offspring only. Picks keep their objectives and are not asked again. A genome that is
    told to have none, because its evaluation failed, is never selected and counts in no scale.

    The random numbers of a generation depend on `seed` and the generation alone, so telling the same
    objectives again leads through the same genomes: that is how a run is resumed. `repair` must be
    deterministic; it is applied before genomes are returned, so what is reported is what was evaluated.
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
            raise InputError(f"parents must be 1, 2 or 3 (there are three to pick from), got {parents}")
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
            raise InputError("there are no picks before the first generation is told: call ask, then tell")
        return self._picks

    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None:
        """The same without some individuals, by their ids; None where no other is left."""
        left = [individual for individual in self._population if individual.id not in refused]
        if not left:
            return None
        chosen = select(np.array([individual.objectives for individual in left]))
        return Picks(*(left[row] for row in chosen))

    @property
    def population(self) -> tuple[Individual, ...]:
        """All among which the picks were selected, by id; empty before the first generation is told."""
        return self._population

    def tell(self, objectives: NDArray[np.float64], scores: object = None) -> None:
        """Learn error and cost (k, 2) of the genomes asked for, in their order, and select the three.

        The paper selects on the error itself: scores are not looked at.

        A row of two nan is a genome without objectives. One with objectives, or a survivor, is enough to
        select from; where there is none, an error is raised and the same genomes can be told again.
        """
        batch, values = self._answered(objectives)
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
        self._go_on()

    def _propose(self, rng: np.random.Generator) -> Batch:
        """All are flipped, from the original or the three picks."""
        held = () if self._picks is None else tuple(sorted({pick.id for pick in self._picks}))
        genomes = self._flipped(rng)
        return Batch(genomes, [Origin("flip", held) for _ in genomes])

    def _flipped(self, rng: np.random.Generator) -> Population:
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
