"""Depth: which sets of filters a network can lose altogether, and what becomes of the branch around them.

Read in this order: `flow` (what reads what), `branches` (what is gone, dead or constant once some sets of
filters are), `hollow` (the modules that stand in for them), `find` (which sets may go, each proven).
"""
