"""How long a thin network takes, planned with from a table of its layers and measured on it as a whole."""

from deeppruning.latency.conditions import Conditions
from deeppruning.latency.plan import LatencyPlan

__all__ = ["Conditions", "LatencyPlan"]
