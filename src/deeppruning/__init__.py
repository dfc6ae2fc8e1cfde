"""DeepPruningES: prune trained convolutional networks with a multi-objective evolution strategy.

>>> import deeppruning as dp
>>> dp.SearchConfig().evaluations
303
"""

import importlib
from typing import TYPE_CHECKING, Any

from deeppruning.version import __version__

if TYPE_CHECKING:
    from deeppruning.api import compare as compare
    from deeppruning.api import prune as prune
    from deeppruning.api import resume as resume
    from deeppruning.api import search as search
    from deeppruning.backends import RayBackend as RayBackend
    from deeppruning.config import FinetuneConfig as FinetuneConfig
    from deeppruning.config import SearchConfig as SearchConfig
    from deeppruning.config import TrainConfig as TrainConfig
    from deeppruning.deploying import deploy as deploy
    from deeppruning.finished import bench as bench
    from deeppruning.finished import export as export
    from deeppruning.finished import finetune as finetune
    from deeppruning.finished import pick as pick
    from deeppruning.finished import report as report
    from deeppruning.graph import ChannelGraph as ChannelGraph
    from deeppruning.jobs.solution import load as load
    from deeppruning.jobs.solution import save as save
    from deeppruning.refitting import refit as refit
    from deeppruning.searching.task import Task as Task

# Imported when first used: `deeppruning --help` must not wait for torch.
_HOMES = {
    "ChannelGraph": "deeppruning.graph",
    "FinetuneConfig": "deeppruning.config",
    "RayBackend": "deeppruning.backends",
    "SearchConfig": "deeppruning.config",
    "Task": "deeppruning.searching.task",
    "TrainConfig": "deeppruning.config",
    "bench": "deeppruning.finished",
    "compare": "deeppruning.api",
    "deploy": "deeppruning.deploying",
    "export": "deeppruning.finished",
    "finetune": "deeppruning.finished",
    "load": "deeppruning.jobs.solution",
    "pick": "deeppruning.finished",
    "prune": "deeppruning.api",
    "refit": "deeppruning.refitting",
    "report": "deeppruning.finished",
    "resume": "deeppruning.api",
    "save": "deeppruning.jobs.solution",
    "search": "deeppruning.api",
}

__all__ = [
    "ChannelGraph",
    "FinetuneConfig",
    "RayBackend",
    "SearchConfig",
    "Task",
    "TrainConfig",
    "__version__",
    "bench",
    "compare",
    "deploy",
    "export",
    "finetune",
    "load",
    "pick",
    "prune",
    "refit",
    "report",
    "resume",
    "save",
    "search",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'deeppruning' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, also those not imported yet, and none of what this file needs: for tab completion."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
