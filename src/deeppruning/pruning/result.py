"""What a run hands back: the original, the three picks, and every candidate ever evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.pruning.solution import Solution
from deeppruning.roles import HEAVY, KNEE, LIGHT, ROLES
from deeppruning.runs.records import Candidate


@dataclass(frozen=True, eq=False)
class Original:
    """The network as it was given, measured."""

    train_error: float | None  # on the search's sample
    test_error: float | None
    flops: int
    params: int
    failure: str = ""  # why it could not be tested


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run; four networks to choose from, and all that was tried on the way.

    A pick whose fine-tuning diverged at every rate is in `failed`, with the reason, and to ask for it is
    an error that says so; the others are there.
    """

    original: Original
    picks: Mapping[str, Solution]  # by role
    failed: Mapping[str, str]  # role -> why there is no such solution
    candidates: list[Candidate] = field(repr=False)
    run_dir: Path

    @property
    def knee(self) -> Solution:
        """The best compromise of the two objectives."""
        return self._pick(KNEE)

    @property
    def heavy(self) -> Solution:
        """The most accurate one in the search."""
        return self._pick(HEAVY)

    @property
    def light(self) -> Solution:
        """The cheapest one."""
        return self._pick(LIGHT)

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """Heavy, knee, light, as far as they are there: from the most accurate to the cheapest."""
        return tuple(self.picks[role] for role in ROLES if role in self.picks)

    def _pick(self, role: str) -> Solution:
        if role in self.failed:
            raise RunError(
                f"{self.run_dir} has no {role} network, its fine-tuning failed: {self.failed[role]}; "
                "fine-tune it by other options with `deeppruning finetune`, or take one of `solutions`"
            )
        return self.picks[role]
