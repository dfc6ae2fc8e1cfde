"""How much each filter matters: from a criterion's scores to a genome of the FLOPs asked for.

Read in this order: `evidence` (what a criterion may look at), `activations` (what filters answer to images),
`criteria` (the scores), `orders` (in which filters go), `budget` (until the FLOPs are met).
"""

from deeppruning.searching.importance.budget import genome_by, meet_flops, order_by
from deeppruning.searching.importance.criteria import CRITERIA, Criterion, register_criterion
from deeppruning.searching.importance.evidence import Evidence
from deeppruning.searching.importance.orders import Scores, global_order, uniform_order

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
