"""What a run hands back: the original, the three picks, and every candidate ever evaluated."""

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.pruning.network_table import SEARCH_ERROR, TEST_ERROR, NetworkRow, NetworkTable
from deeppruning.pruning.solution import Solution
from deeppruning.roles import HEAVY, KNEE, LIGHT, ORIGINAL, ROLES
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

    It prints as a table of them, and shows one in a notebook, above a plot of all candidates.
    A pick whose fine-tuning diverged at every rate is in `failed`, with the reason, and to ask for it is
    an error that says so; the others are there.
    """

    original: Original
    picks: Mapping[str, Solution]  # by role
    failed: Mapping[str, str]  # role -> why there is no such solution
    candidates: list[Candidate] = field(repr=False)
    run_dir: Path
    plot: Callable[[Path], str] | None = None  # draws the candidates of a run as SVG, for a notebook

    def __repr__(self) -> str:
        return "\n".join([self._table().text(), *self._remarks()])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{html.escape(line)}</p>" for line in self._remarks())
        picture = "" if self.plot is None else self.plot(self.run_dir)
        return f"<div>{self._table().html()}{remarks}{picture}</div>"

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

    def _table(self) -> NetworkTable:
        """The networks side by side; with their errors in the search where there was no test."""
        networks: list[Original | Solution] = [self.original, *self.solutions]
        tested = any(one.test_error is not None for one in networks)
        errors = [one.test_error if tested else one.train_error for one in networks]
        before, *after = errors
        whole = self.original
        rows = [NetworkRow(ORIGINAL, None, before, whole.flops, 0.0, whole.params, failure=whole.failure)]
        rows += [
            NetworkRow(one.role, one.id, error, one.flops, one.flops_pruned, one.params)
            for one, error in zip(self.solutions, after, strict=True)
        ]
        share = all(0.0 <= error <= 1.0 for error in errors if error is not None)
        return NetworkTable(rows, TEST_ERROR if tested else SEARCH_ERROR, share)

    def _remarks(self) -> list[str]:
        failed = [f"{role} failed: {reason}" for role, reason in self.failed.items()]
        return [*failed, f"run folder: {self.run_dir}"]

    def _pick(self, role: str) -> Solution:
        if role in self.failed:
            raise RunError(
                f"{self.run_dir} has no {role} network, its fine-tuning failed: {self.failed[role]}; "
                "fine-tune it by other options with `deeppruning finetune`, or take one of `solutions`"
            )
        return self.picks[role]
