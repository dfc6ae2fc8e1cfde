"""Whether a candidate may be handed out: its cut must be proven, which is looked at once for each.

A search trusts the channel graph; what leaves it does not: a forward method may depend on sizes in ways that
building the graph could not see. A candidate whose proof fails is refused, and the next best takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import CandidateRefused

if TYPE_CHECKING:
    from deeppruning.jobs.job import Job


def _untold(one: Candidate, why: str) -> None:
    """Where nobody is to be told."""


@dataclass(frozen=True, eq=False)
class Proofs:
    """The proofs of one network's candidates."""

    context: Context
    refused: dict[int, str] = field(default_factory=dict)  # by the candidate's id, for what reason
    tell: Callable[[Candidate, str], None] = _untold

    @classmethod
    def of_run(cls, job: Job, run: RunFolder) -> Proofs:
        """Those of a run, which keeps what was refused: going on, it comes to the same networks."""
        refused = {int(id_): why for id_, why in facts.refused_in(run.history.facts()).items()}

        def keep(one: Candidate, why: str) -> None:
            run.history.set_fact(facts.REFUSED, {str(id_): reason for id_, reason in refused.items()})
            job.observer(CandidateRefused(one.id, why))

        return cls(job.context, refused, keep)

    def after_run(self) -> Proofs:
        """The same for whoever chooses once the run is closed."""
        return replace(self, refused=dict(self.refused), tell=_untold)

    def hold(self, one: Candidate) -> bool:
        """Whether the cut of a candidate is proven; one that is not is refused from now on."""
        proven = self.context.once("proven", set[bytes])
        key = one.genome.tobytes()
        if one.id not in self.refused and key not in proven:
            why = self.context.graph.fault(one.genome)
            if why:
                self.refused[one.id] = why
                self.tell(one, why)
            else:
                proven.add(key)
        return one.id not in self.refused

    def why_none(self) -> str:
        """What to say where no candidate is left."""
        why = next(iter(self.refused.values()), "there was none")
        return (
            f"every candidate that could be chosen was refused ({len(self.refused)} in all); of the first, "
            f"{why}. The network depends on sizes in a way that is not understood: leave out the layers "
            "before that operation (exclude=..., --exclude), and please report this network"
        )
