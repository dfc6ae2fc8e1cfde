"""DeepPruningES: prune trained convolutional networks with a multi-objective evolution strategy.

>>> import deeppruning as dp
>>> dp.SearchConfig().evaluations
83
"""

import importlib
import random
from typing import TYPE_CHECKING, Any

from deeppruning.version import __version__

if TYPE_CHECKING:
    from deeppruning.api import compare as compare
    from deeppruning.api import cut as cut
    from deeppruning.api import prune as prune
    from deeppruning.api import search as search
    from deeppruning.api_runs import bench as bench
    from deeppruning.api_runs import export as export
    from deeppruning.api_runs import finetune as finetune
    from deeppruning.api_runs import pick as pick
    from deeppruning.api_runs import report as report
    from deeppruning.api_runs import resume as resume
    from deeppruning.backends import RayBackend as RayBackend
    from deeppruning.config import FinetuneConfig as FinetuneConfig
    from deeppruning.config import SearchConfig as SearchConfig
    from deeppruning.config import TrainConfig as TrainConfig
    from deeppruning.deploying import deploy as deploy
    from deeppruning.graph import ChannelGraph as ChannelGraph
    from deeppruning.importing import from_onnx as from_onnx
    from deeppruning.jobs.result import Front as Front
    from deeppruning.jobs.result import Result as Result
    from deeppruning.jobs.solution import Solution as Solution
    from deeppruning.jobs.solution import load as load
    from deeppruning.jobs.solution import save as save
    from deeppruning.models import create_model as create_model
    from deeppruning.refitting import refit as refit
    from deeppruning.searching.task import Task as Task
    from deeppruning.thinning import thin as thin

# Imported when first used: `deeppruning --help` must not wait for torch.
_HOMES = {
    "api": ("compare", "cut", "prune", "search"),
    "api_runs": ("bench", "export", "finetune", "pick", "report", "resume"),
    "backends": ("RayBackend",),
    "config": ("FinetuneConfig", "SearchConfig", "TrainConfig"),
    "deploying": ("deploy",),
    "graph": ("ChannelGraph",),
    "importing": ("from_onnx",),
    "jobs.result": ("Front", "Result"),
    "jobs.solution": ("Solution", "load", "save"),
    "models": ("create_model",),
    "refitting": ("refit",),
    "searching.task": ("Task",),
    "thinning": ("thin",),
}
_HOME_OF = {name: f"deeppruning.{home}" for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'deeppruning' has no attribute {name!r}")
    drawn = random.getstate()
    try:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    finally:
        random.setstate(drawn)  # libraries that are imported here draw numbers, which the caller's seed gave


def __dir__() -> list[str]:
    """The public names, also those not imported yet, for tab completion."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
