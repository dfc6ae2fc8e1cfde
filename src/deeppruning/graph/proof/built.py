"""A network understood: its plan, and what is needed to prove any cut of it again."""

from dataclasses import dataclass

from deeppruning.graph.labels.atoms import Atoms
from deeppruning.graph.plan import Genes, Plan
from deeppruning.graph.trace.tracer import Record


@dataclass
class Built:
    """A plan with what is needed to run the proof again."""

    plan: Plan
    classes: Atoms
    gene_of_class: Genes
    detached: frozenset[str]
    records: list[Record]  # of the run in evaluation mode
    notes: list[str]
