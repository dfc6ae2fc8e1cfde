"""Refit: a thin network's layers solved for, in closed form, so that they answer what the original did.

Read in this order: `solve` (least squares, drawn towards the weights as cut), `patches` (what a layer reads
at some places of its output), `readers` (what its answer goes into), `reference` (what the original answered
there), `refit` (the one pass).
"""

from deeppruning.refitting.reference import Reference
from deeppruning.refitting.refit import Refitted, refit, refit_in_place, refit_with

__all__ = ["Reference", "Refitted", "refit", "refit_in_place", "refit_with"]
