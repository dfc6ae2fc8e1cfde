"""Methods whose networks are refitted: the same filters go, what is left is solved for in closed form."""

from collections.abc import Sequence

from deeppruning.comparison.methods.registry import METHODS
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.refitting.reference import FEWEST

KINDS = {"criteria": "criteria with refit"}  # where the report shows them, if not with the method itself


class WithRefit(Method):
    """Another method's genomes, bit for bit, with weights from a refit on the whole sample.

    The difference to that method is what the refit is worth; the difference to a search that refits is what
    the search is worth.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.name = f"{method.name}+refit"
        self.kind = KINDS.get(method.kind, method.kind)
        self.needs = method.needs
        self.least_sample = max(FEWEST, method.least_sample)

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """Ask the method, then refit."""
        return problem.refitted(network.genome for network in self.method.propose(problem, targets))


def _follow(method: Method) -> None:
    if method.refittable:
        twin = WithRefit(method)
        if isinstance(METHODS.get(twin.name), WithRefit):  # the method was defined anew, as notebooks do
            METHODS.remove(twin.name)
        METHODS.add(twin)


METHODS.follow(_follow)
