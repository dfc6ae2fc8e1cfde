"""Depth: which sets of filters a network can lose altogether, and what becomes of the branch around them.

Read in this order: `flow` (what reads what), `branches` (what is gone, dead or constant once some sets of
filters are), `find` (which sets may go, and what goes with them), `hearing` (whether a path is left from the
inputs to the outputs, channel by channel), `repair` (genomes that empty some),
`prove` (each comparison held). The modules that stand in for lost layers are in `cut.hollow`.
"""
