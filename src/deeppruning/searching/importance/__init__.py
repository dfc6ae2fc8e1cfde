"""How much each filter matters: from the scores of a criterion to a genome with the FLOPs asked for.

Read in this order: `evidence` (what a criterion may look at), `criteria` (the scores), `orders` (of removal,
until the FLOPs are met).
"""

from deeppruning.searching.importance.criteria import CRITERIA, Criterion, register_criterion
from deeppruning.searching.importance.evidence import Evidence, Scores
from deeppruning.searching.importance.orders import (
    genome_by,
    global_order,
    meet_flops,
    order_by,
    uniform_order,
)

__all__ = [
    "CRITERIA",
    "Criterion",
    "Evidence",
    "Scores",
    "genome_by",
    "global_order",
    "meet_flops",
    "order_by",
    "register_criterion",
    "uniform_order",
]
