"""A network understood: its plan, and what is needed to prove any cut of it again."""

from dataclasses import dataclass

from deeppruning.graph.labels.atoms import Ids
from deeppruning.graph.plan import Plan
from deeppruning.graph.trace.tracer import Record


@dataclass
class Built:
    """A plan with what is needed to run the proof again."""

    plan: Plan
    classes: Ids
    gene_of_class: Ids
    detached: frozenset[str]
    records: list[Record]  # of the run in evaluation mode
    notes: list[str]
    rounds: int  # how often the network was traced until every probe held
