"""What workers of a comparison hold: the context that all methods share, and the one that refits."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deeppruning.searching.candidate import Context
from deeppruning.searching.evaluations import EVALUATIONS
from deeppruning.searching.task import Classification

REFIT = "refit"  # what the methods that vary widths are judged by
BRIEF = "finetune"  # what those that flip bits are judged by, where the comparison itself refits


@dataclass(frozen=True, eq=False)
class Contexts:
    """One context in two variants; the second is made from the first where it is needed, once a process.

    Fine-tuning uses the plain one, which refits nothing: networks that are refitted bring their weights.
    """

    plain: Context  # its task is a Classification that holds the whole training set

    @classmethod
    def of(cls, context: Context, task: Classification) -> "Contexts":
        """The contexts for a task that candidates may be refitted for; the plain one trains them briefly."""
        if EVALUATIONS.find(task.search.evaluation).refits:
            task = replace(task, search=replace(task.search, evaluation=BRIEF), evaluation=None)
        return cls(replace(context, task=task, refits=False, _found={}))

    @cached_property
    def refitting(self) -> Context:
        """Candidates are refitted and judged on the rest of the sample; picks are refitted on all of it."""
        task = self.plain.task
        assert isinstance(task, Classification)
        search = replace(task.search, evaluation=REFIT)
        # Nothing is fine-tuned here, so what the options say of it does not matter.
        own = replace(task, search=search, evaluation=None, train=None, tuning=None)
        return replace(self.plain, task=own, refits=True, _found={})

    def with_seed(self, seed: int) -> "Contexts":
        """The same with another seed."""
        return Contexts(replace(self.plain, seed=seed))

    def __getstate__(self) -> dict[str, Any]:
        return {"plain": self.plain}
