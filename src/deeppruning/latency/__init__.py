"""The latency of thin networks: predicted from a table of layer times, or measured on the whole network."""

from deeppruning.latency.plan import LatencyPlan
from deeppruning.latency.runtimes import Conditions

__all__ = ["Conditions", "LatencyPlan"]
