"""The channel graph: follow a network for one run on channel labels, then cut and price it.

Each term means one thing:
- *filter*: part of a layer; it makes one *channel* of an activation.
- *atom*: the number of a channel where it is made; *label*: the atom stored beside an element of a tensor.
- *class*: atoms that are kept or removed together; *gene*: a class that may be removed, one bit of a genome;
  -1 stands for what always stays.
- *position* along a *dimension* of a parameter or an activation. Where a tensor is a parameter moved
  about, its *own* dimension is the parameter's.
- *strip*: the gene at each position of a dimension. A thin network keeps some positions of each strip.
- *site*: a place in the network as a key: an operation of the run, or a dimension of a parameter.
- *unit*: the genes that make up all filters of some layers, which may go with their branch.
- *masked*: the full network with the channels that a genome removes held at zero. A cut must equal it.
- *repair* turns any genome into one that can be cut; *remedies* change what is known about a network.

Read in this order: `atoms` and `payloads` (what flows), `rules` (what each operation does), `trace` (the
run, and who reads whom), `cut` (from a recipe to a thin network), `depth` (whole branches go), `paths` (from
inputs to outputs), `plan` and `repair` (what the run results in, made by `assemble`), `proof` (a cut equals
masking), `build` (trace, prove, adapt until it holds), `channel_graph` (the public class).
"""

from deeppruning.graph.channel_graph import ChannelGraph

__all__ = ["ChannelGraph"]
