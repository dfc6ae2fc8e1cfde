"""The channel graph: understand any CNN by running it once on channel labels, cut it, price it.

Read in this order: `atoms` (what a label is), `labels` (how a tensor carries them), `rules_*` (what
each operation does to them), `follow` and `trace` (the run), `assemble` and `plan` (what the run boils
down to), `cut` (the thin network), `silence` and `probe` (the proof that a cut equals silence),
`moves` and `trials` (the genomes it is asked for), `remedies`, `stage` and `build` (trace, probe, adapt
until it holds).
"""

from deeppruning.graph.channel_graph import ChannelGraph

__all__ = ["ChannelGraph"]
