"""The channel graph: understand any CNN by running it once on channel labels, cut it, price it.

The words, each for one thing:
- *filter*: what a layer has; it makes one *channel* of an activation.
- *atom*: a channel at its birth, a number; *label*: the atom written beside an element of a tensor.
- *class*: atoms that go or stay together; *gene*: a class that may go, one bit of a genome. -1: it stays.
- *position* along a *dimension*: of a parameter or an activation. Where a tensor is a parameter moved
  about, its *own* dimension is the parameter's.
- *strip*: the gene at each position of a dimension. A thin network keeps some positions of each strip.
- *site*: a place in the network as a key: an operation of the run, or a dimension of a parameter.
- *unit*: the genes that make up all filters of some layers, which may go with their branch.
- *repair* makes a genome one that can be cut; *remedies* change what is known of a network.

Read in this order: `labels` (what flows), `rules` (what each operation does to it), `trace` (the run),
`cut` (from a recipe to a thin network), `plan` with `prices` and `repair` (what the run boils down to,
made by `assemble`), `proof` (a cut equals silence), `depth` (whole branches go), `build` (trace, prove,
adapt until it holds), `channel_graph` (the public face).
"""

from deeppruning.graph.channel_graph import ChannelGraph

__all__ = ["ChannelGraph"]
