"""A problem for a method, without a run around it."""

from pathlib import Path

from torch import nn

import deeppruning as dp
from deeppruning.backends import InProcessBackend
from deeppruning.comparison.contexts import Contexts
from deeppruning.comparison.problem import Clock, Problem, call
from deeppruning.data.images import ImageSet
from deeppruning.jobs.prepare import prepare
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.task import Classification
from search_helpers import digits, quick_finetune, quick_search


def make_problem(
    model: nn.Module,
    folder: Path,
    *,
    data: tuple[ImageSet, ImageSet] | None = None,
    search: dp.SearchConfig | None = None,
    seed: int = 0,
) -> Problem:
    """The model on a little real data, evaluated in this process."""
    train, test = data or digits()
    options = search or quick_search(seed=seed)
    job = prepare(model, train, test, search=options, finetune=quick_finetune(epochs=1), measure=False)
    assert isinstance(job.task, Classification)
    contexts = Contexts.of(Context(job.context.graph, job.task, "flops", None, options.seed), job.task)
    workers = InProcessBackend().open(call, contexts)
    return Problem(model, contexts, options, workers, History(folder / "history.sqlite"), Clock())
