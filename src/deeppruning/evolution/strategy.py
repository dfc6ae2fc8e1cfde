"""The evolution strategy as ask and tell: it proposes genomes and learns their objectives.

>>> strategy = EvolutionStrategy(8, offspring=5, generations=3, seed=1)
>>> while not strategy.done:
...     genomes = strategy.ask()
...     kept = genomes.mean(axis=1)
...     strategy.tell(np.stack([1 - kept, kept], axis=1))
>>> strategy.evaluations
18
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError, unknown
from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.variation import flip, recombine
from deeppruning.genome import Genome, Population


@dataclass(frozen=True, eq=False)
class Individual:
    """An evaluated genome; `id` counts the proposals from 0, `generation` from 1."""

    id: int
    generation: int
    genome: Genome
    error: float
    cost: float

    @property
    def objectives(self) -> tuple[float, float]:
        """Error and cost."""
        return self.error, self.cost


@dataclass(frozen=True)
class Origin:
    """Where a genome comes from: the operator that made it, or the seed it is, and its parents' ids."""

    operator: str
    parents: tuple[int, ...] = ()
    order: str = ""  # of filters, that chose which stay


class EvolutionStrategy:
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
        fewest = 3 if selection == "comma" else 1
        for name, value, low in (
            ("num_genes", num_genes, 1),
            ("offspring", offspring, fewest),
            ("generations", generations, 1),
            ("parents", parents, 1),
            ("seed", seed, 0),
        ):
            if value < low:
                raise InputError(f"{name} must be at least {low}, got {value}")
        if parents > 3:
            raise InputError(f"parents must be 1, 2 or 3 (there are three to pick from), got {parents}")
        if not 0.0 <= mutation <= 1.0:
            raise InputError(f"mutation must lie in [0, 1], got {mutation}")
        self.num_genes = num_genes
        self.offspring = offspring
        self.generations = generations
        self.mutation = mutation
        self.selection = selection
        self.parents = parents
        self.seed = seed
        self._repair = repair
        self._told = 0
        self._next_id = 0
        self._batch: Population | None = None
        self._population: tuple[Individual, ...] = ()
        self._picks: Picks[Individual] | None = None

    @property
    def done(self) -> bool:
        """Whether the last generation has been told."""
        return self._told == self.generations

    @property
    def generation(self) -> int:
        """The generation under way, from 1; it stays at the last one when done."""
        return min(self._told + 1, self.generations)

    @property
    def evaluations(self) -> int:
        """How many genomes a whole run asks for: 203 with the defaults."""
        return 3 + self.offspring * self.generations

    @property
    def ids(self) -> range:
        """The ids of the genomes that `ask` returns, in their order."""
        size = 0 if self.done else self.offspring + (0 if self._told else 3)
        return range(self._next_id, self._next_id + size)

    @property
    def picks(self) -> Picks[Individual]:
        """Knee, heavy and light of the last generation told."""
        if self._picks is None:
            raise InputError("there are no picks before the first generation is told: call ask, then tell")
        return self._picks

    @property
    def population(self) -> tuple[Individual, ...]:
        """All among which the picks were selected, by id; empty before the first generation is told."""
        return self._population

    def ask(self) -> Population:
        """The genomes (k, num_genes) to evaluate in this generation; the same ones until `tell`."""
        if self.done:
            raise InputError(f"the search is over after {self.generations} generations: nothing left to ask")
        if self._batch is None:
            self._batch = self._propose()
        return self._batch.copy()

    @property
    def origins(self) -> list[Origin]:
        """Where the genomes that `ask` returns come from: all are flipped, from the original or the picks."""
        held = () if self._picks is None else tuple(sorted({pick.id for pick in self._picks}))
        return [Origin("flip", held) for _ in self.ids]

    def tell(self, objectives: NDArray[np.float64], scores: object = None) -> None:
        """Learn error and cost (k, 2) of the genomes asked for, in their order, and select the three.

        The paper selects on the error itself: scores are not looked at.

        A row of two nan is a genome without objectives. One with objectives, or a survivor, is enough to
        select from; where there is none, an error is raised and the same genomes can be told again.
        """
        if self._batch is None:
            raise InputError("tell needs genomes that were asked for: call ask first")
        values = np.asarray(objectives, dtype=np.float64)
        if values.shape != (len(self._batch), 2):
            raise InputError(
                f"objectives must have shape {(len(self._batch), 2)}, one row of error and cost for each "
                f"genome asked for, got {values.shape}"
            )
        newcomers = [
            Individual(number, self.generation, genome, float(error), float(cost))
            for number, genome, (error, cost) in zip(self.ids, self._batch, values, strict=True)
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
        chosen = select(np.array([individual.objectives for individual in population]))
        self._picks = Picks(*(population[row] for row in chosen))
        self._population = tuple(population)
        self._next_id = self.ids.stop
        self._told += 1
        self._batch = None

    def _propose(self) -> Population:
        rng = np.random.default_rng([self.seed, self.generation])
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
