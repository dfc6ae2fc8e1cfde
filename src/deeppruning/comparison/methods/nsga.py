"""Multi-objective rivals on NSGA-II from pymoo: as it is, and guided to the knee."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.methods.searching import Searching
from deeppruning.comparison.problem import Problem
from deeppruning.genome import Genome
from deeppruning.searching.strategies import paper_strategy


@register_method
class NSGA2(Searching):
    """Deb et al. 2002: non-dominated sorting, ties broken by crowding distance.

    It starts from the first generation of the evolution strategy and makes as many offspring a
    generation, by uniform crossover and bit flips at the same rate: equal in the number of evaluations.
    A candidate without objectives is infeasible: any other is better.
    """

    name = "nsga2"
    needs = "pymoo"

    def crowding(self) -> Any:
        """How pymoo is to order candidates that do not dominate each other."""
        return "cd"

    def search(self, problem: Problem) -> list[tuple[Genome, NDArray[np.float64]]]:
        """Ask and tell to the end."""
        from pymoo.algorithms.moo.nsga2 import NSGA2 as Algorithm
        from pymoo.algorithms.moo.nsga2 import RankAndCrowding
        from pymoo.core.problem import Problem as Space
        from pymoo.operators.crossover.ux import UniformCrossover
        from pymoo.operators.mutation.bitflip import BitflipMutation

        config, repair = problem.search, problem.graph.repair
        first = paper_strategy(problem.context, replace(config, seed=problem.seed)).ask()
        algorithm = Algorithm(
            pop_size=len(first),
            n_offsprings=config.offspring,
            sampling=first,
            crossover=UniformCrossover(),
            mutation=BitflipMutation(prob=1.0, prob_var=config.mutation),
            survival=RankAndCrowding(crowding_func=self.crowding()),
            eliminate_duplicates=False,  # a twin costs nothing, and every generation keeps its size
        )
        space = Space(n_var=problem.graph.num_genes, n_obj=2, n_ieq_constr=1, vtype=bool)
        algorithm.setup(space, termination=("n_gen", config.generations), seed=problem.seed, verbose=False)
        batches = []

        def judge(people: NDArray[Any]) -> NDArray[np.float64]:
            genomes = repair(people.astype(np.bool_))
            people[:] = genomes  # what is evaluated is what parents are made of
            batches.append((genomes, problem.evaluate(genomes)))
            return batches[-1][1]

        ask_and_tell(algorithm, judge)
        return batches


def ask_and_tell(algorithm: Any, judge: Callable[[NDArray[Any]], NDArray[np.float64]]) -> None:
    """Run an algorithm of pymoo to its end.

    `judge` is given a generation (k, variables), which it may change in place, and returns two objectives
    for each, nan for one that has none.
    """
    while algorithm.has_next():
        people = algorithm.ask()
        variables = people.get("X")
        objectives = judge(variables)
        people.set("X", variables)
        failed = np.isnan(objectives).any(axis=1, keepdims=True)
        people.set("F", np.where(failed, 0.0, objectives))
        people.set("G", failed.astype(np.float64))
        for person in people:
            person.evaluated.update({"F", "G", "H"})
        algorithm.tell(infills=people)


@register_method
class KGEA(NSGA2):
    """Zhou et al. 2019, the knee-guided evolutionary algorithm, on NSGA-II as they have it.

    Candidates that do not dominate each other are ordered by their Manhattan distance to the ideal
    point, both objectives scaled to 0..1: the population gathers at the knee. The source minimises the
    number of weights beside the error; here, as in all searches of a comparison, it is the FLOPs.
    """

    name = "kgea"

    def crowding(self) -> Any:
        """The nearer to the ideal point, the better; pymoo must not give twins a number of its own."""
        from pymoo.operators.survival.rank_and_crowding.metrics import FunctionalDiversity

        return FunctionalDiversity(knee_preference, filter_out_duplicates=False)


def knee_preference(objectives: NDArray[np.float64], **_: Any) -> NDArray[np.float64]:
    """
    >>> knee_preference(np.array([[0.0, 4.0], [1.0, 1.0], [4.0, 0.0]])).tolist()
    [-1.0, -0.5, -1.0]
    """
    low = objectives.min(axis=0)
    extent = objectives.max(axis=0) - low
    return np.asarray(-((objectives - low) / np.where(extent > 0, extent, 1.0)).sum(axis=1))
