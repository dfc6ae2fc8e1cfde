"""Ask and tell, as every strategy does it: generations of numbered genomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError
from deeppruning.evolution.selection import Picks
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
    """Where a genome comes from: the operator or seed that made it, and the ids of its parents."""

    operator: str
    parents: tuple[int, ...] = ()
    order: str = ""  # of the filters, which decided the ones that stay


@dataclass(frozen=True, eq=False)
class Batch:
    """The genomes of one generation, with their origins."""

    genomes: Population
    origins: list[Origin]


class Generations(ABC):
    """Asks for 3 + offspring genomes, then for `offspring` per generation.

    The random numbers of a generation depend on `seed` and the generation alone, so that telling the same
    objectives again leads to the same genomes: that is how a run is resumed.
    """

    def __init__(self, *, offspring: int, generations: int, seed: int, fewest: int = 1) -> None:
        for name, value, low in (
            ("offspring", offspring, fewest),
            ("generations", generations, 1),
            ("seed", seed, 0),
        ):
            if value < low:
                raise InputError(f"{name} must be at least {low}, got {value}")
        self.offspring = offspring
        self.generations = generations
        self.seed = seed
        self.improved = 0  # entries of an archive, by the last generation
        self.novel = 0  # genomes of the last generation that had not been proposed before
        self._told = 0
        self._next_id = 0
        self._batch: Batch | None = None

    @property
    def done(self) -> bool:
        """Whether the last generation has been told."""
        return self._told == self.generations

    @property
    def generation(self) -> int:
        """The current generation, from 1; it stays at the last one when done."""
        return min(self._told + 1, self.generations)

    @property
    def evaluations(self) -> int:
        """The number of genomes in a whole run: 203 with the paper's values."""
        return 3 + self.offspring * self.generations

    @property
    def ids(self) -> range:
        """The ids of the genomes that `ask` returns, in their order."""
        size = 0 if self.done else self.offspring + (0 if self._told else 3)
        return range(self._next_id, self._next_id + size)

    @property
    def origins(self) -> list[Origin]:
        """The origins of the genomes that `ask` returns, in their order."""
        return list(self._batch_asked_for().origins)

    def ask(self) -> Population:
        """The genomes (k, num_genes) to evaluate in this generation; the same ones until `tell`."""
        return self._batch_asked_for().genomes.copy()

    def follow(self, genomes: Population, made: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Replace this generation by recorded genomes, with their operators and parents.

        A resumed run keeps what it recorded: another processor rounds differently and may propose others.
        """
        asked = self._batch_asked_for()
        if genomes.shape != asked.genomes.shape or len(made) != len(genomes):
            raise InputError(
                f"genomes to follow must have shape {asked.genomes.shape}, and each an origin, got "
                f"{genomes.shape} and {len(made)} origins"
            )
        origins = [
            replace(origin, operator=operator, parents=parents) if operator else origin
            for origin, (operator, parents) in zip(asked.origins, made, strict=True)
        ]
        self._batch = Batch(genomes.copy(), origins)

    @property
    @abstractmethod
    def picks(self) -> Picks[Individual]:
        """Knee, heavy and light of all generations told."""

    @abstractmethod
    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None:
        """The picks without some individuals, by their ids; None where no other is left."""

    @abstractmethod
    def tell(self, objectives: NDArray[np.float64], scores: NDArray[np.float64] | None = None) -> None:
        """Learn error and cost (k, 2), and the score to select on (k,), of the genomes asked for.

        A row of two nan is a genome whose evaluation failed.
        """

    @abstractmethod
    def _propose(self, rng: np.random.Generator) -> Batch:
        """The genomes of the current generation."""

    def _batch_asked_for(self) -> Batch:
        if self.done:
            raise InputError(f"the search is over after {self.generations} generations: nothing left to ask")
        if self._batch is None:
            self._batch = self._propose(np.random.default_rng([self.seed, self.generation]))
        return self._batch

    def _batch_with_objectives(self, objectives: NDArray[np.float64]) -> tuple[Batch, NDArray[np.float64]]:
        """The batch that was asked for, and its objectives (k, 2), checked."""
        if self._batch is None:
            raise InputError("tell needs genomes that were asked for: call ask first")
        values = np.asarray(objectives, dtype=np.float64)
        if values.shape != (len(self._batch.genomes), 2):
            raise InputError(
                f"objectives must have shape {(len(self._batch.genomes), 2)}, one row of error and cost for "
                f"each genome asked for, got {values.shape}"
            )
        return self._batch, values

    def _start_next_generation(self) -> None:
        self._next_id = self.ids.stop
        self._told += 1
        self._batch = None
