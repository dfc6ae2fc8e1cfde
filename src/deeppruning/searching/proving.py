"""Proofs of cuts: a candidate is handed out only if its cut is proven, which is checked once for each.

A search trusts the channel graph; what leaves it does not: a forward method may depend on sizes in ways that
building the graph could not see. A candidate that fails its proof is refused, and the next best replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import CandidateRefused, Observer


def _tell_nobody(candidate: Candidate, reason: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False)
class Proofs:
    """The proofs of one network's candidates."""

    context: Context
    refused: dict[int, str] = field(default_factory=dict)  # reasons by the candidate's id
    tell: Callable[[Candidate, str], None] = _tell_nobody

    @classmethod
    def of_run(cls, context: Context, history: History, observer: Observer) -> Proofs:
        """The proofs of a run, which records what was refused: resumed, it picks the same networks."""
        refused = {int(id_): why for id_, why in facts.refused_in(history.facts()).items()}

        def record(candidate: Candidate, reason: str) -> None:
            history.set_fact(facts.REFUSED, {str(id_): why for id_, why in refused.items()})
            observer(CandidateRefused(candidate.id, reason))

        return cls(context, refused, record)

    def after_run(self) -> Proofs:
        """A copy to use once the run is closed."""
        return replace(self, refused=dict(self.refused), tell=_tell_nobody)

    def hold(self, candidate: Candidate) -> bool:
        """Whether the cut of a candidate is proven; one that is not is refused from now on."""
        proven = self.context.once("proven", set[bytes])
        key = candidate.genome.tobytes()
        if candidate.id not in self.refused and key not in proven:
            reason = self.context.graph.fault(candidate.genome)
            if reason:
                self.refused[candidate.id] = reason
                self.tell(candidate, reason)
            else:
                proven.add(key)
        return candidate.id not in self.refused

    def why_none(self) -> str:
        """The message for the case that no candidate is left."""
        reason = next(iter(self.refused.values()), "there was none")
        return (
            f"every candidate that could be chosen was refused ({len(self.refused)} in total), the first "
            f"because {reason}. The network depends on sizes in a way that is not understood: leave out the "
            "layers before that operation (exclude=..., --exclude), and please report this network"
        )
