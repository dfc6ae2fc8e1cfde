"""Small networks for the tests of the channel graph, one for every thing a forward method may do."""

from graph_networks import branches, chains, groups, interfaces, joins, moves, norms, oddities, reads, weights
from graph_networks.parts import NETWORKS, Net, block, conv, head

__all__ = [
    "NETWORKS",
    "Net",
    "block",
    "branches",
    "chains",
    "conv",
    "groups",
    "head",
    "interfaces",
    "joins",
    "moves",
    "norms",
    "oddities",
    "reads",
    "weights",
]
