"""Deployment: a network in the form it is used in, without what only training needs.

Read in this order: `deploy` (the call, and the proof), `reading` (which module reads which), `norms` and
`stand_ins` (what can go, found), `steps` (how each goes).
"""

from deeppruning.deploying.deploy import deploy, deployed
from deeppruning.deploying.report import Deployment

__all__ = ["Deployment", "deploy", "deployed"]
