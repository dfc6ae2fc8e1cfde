"""Refit: the layers of a thin network solved in closed form, so that they answer as the original did.

Read in this order: `solve` (least squares with a ridge towards the weights as cut), `patches` (what a layer
reads at some places of its output), `readers` (who reads its answers), `reference` with `probing`, `records`
and `recorder` (what the original answers at these places), `goals` (what the thin network should answer),
`sweep` (the one pass, with `turns`), `refit` (the calls).
"""

from deeppruning.refitting.reference import Reference
from deeppruning.refitting.refit import Refitted, refit, refit_in_place, refit_with

__all__ = ["Reference", "Refitted", "refit", "refit_in_place", "refit_with"]
