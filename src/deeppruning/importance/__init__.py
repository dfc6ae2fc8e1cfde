"""How much each filter matters: from a criterion's scores to a genome of the FLOPs asked for.

Read in this order: `evidence` (what a criterion may look at), `activations` (what filters answer to images),
`criteria` (the scores), `orders` (in which filters go), `budget` (until the FLOPs are met).
"""

from deeppruning.importance.budget import genome_by, meet_flops, order_by
from deeppruning.importance.criteria import Criterion, register_criterion
from deeppruning.importance.evidence import Evidence
from deeppruning.importance.orders import Scores, global_order, uniform_order
from deeppruning.registry import CRITERIA

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
