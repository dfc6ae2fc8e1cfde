"""What a run hands back: the original, the three picks, and every candidate ever evaluated."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from deeppruning.errors import InputError, RunError
from deeppruning.jobs.identity import original
from deeppruning.jobs.network_table import SEARCH_ERROR, TEST_ERROR, NetworkRow, NetworkTable
from deeppruning.jobs.solution import Solution
from deeppruning.limits import Limits
from deeppruning.roles import HEAVY, KNEE, LIGHT, ORIGINAL, TARGET, candidate_name, in_order, target_number
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import refit_if_asked
from deeppruning.targets.choice import Choice, Yardstick, choose, describe


@dataclass(frozen=True, eq=False)
class Original:
    """The network as it was given, measured."""

    train_error: float | None  # on the search's sample
    test_error: float | None
    flops: int
    params: int
    doubt: str = ""  # a warning that it is hardly better than guessing
    failure: str = ""  # why it could not be tested


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run; the networks to choose from, and all that was tried on the way.

    It prints as a table of them, and shows one in a notebook, above a plot of all candidates.
    A pick whose fine-tuning diverged at every rate is in `failed`, with the reason, and to ask for it is
    an error that says so; the others are there.
    """

    original: Original
    picks: Mapping[str, Solution]  # by role
    failed: Mapping[str, str]  # role -> why there is no such solution
    candidates: list[Candidate] = field(repr=False)
    run_dir: Path
    yardstick: Yardstick | None = field(default=None, repr=False)  # what `best` tells costs by
    asked: Sequence[str] = ()  # what became of targets, in words
    advice: str = ""  # which network to take and why, in one sentence
    advised: str | None = None  # its role
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
    def target(self) -> Solution:
        """The one that meets the limits that were asked for, the first where there are several."""
        if TARGET in self.picks:
            return self.picks[TARGET]
        why = self.failed.get(TARGET) or (
            'no limits were given; prune(..., target={"flops": 0.4}) does so, `best` and `deeppruning pick` '
            "choose afterwards"
        )
        raise RunError(f"{self.run_dir} has no target network: {why}")

    @property
    def targets(self) -> tuple[Solution, ...]:
        """All networks that were chosen for limits, in the order these were asked for."""
        return tuple(one for one in self.solutions if target_number(one.role) is not None)

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """Heavy, knee, light, from the most accurate to the cheapest, and targets; as far as there are."""
        return tuple(self.picks[role] for role in in_order(self.picks))

    @property
    def recommended(self) -> Solution | None:
        """The one to take, for the reason in `advice`; None where what is known recommends none."""
        return None if self.advised is None else self.picks.get(self.advised)

    def best(self, **limits: Any) -> Solution:
        """The best of all candidates within limits: best(flops=0.4), best(size="1MB", latency="5ms").

        One that is not among the solutions comes refitted, as fine-tuning would begin with it: neither
        trained nor saved, so without a test error and a path. `dp.pick` fine-tunes it and saves it.
        """
        wanted = Limits.of(limits)
        if not wanted or wanted.bounds_error:
            raise InputError(
                "best chooses by cost: flops, params, size or latency. An error is limited by "
                "prune(..., target=...) or `deeppruning pick`, which train without the images they check on"
            )
        assert self.yardstick is not None
        choice = choose(self.candidates, wanted, self.yardstick)
        if not choice.met:
            told = describe(wanted, choice.figures, self.yardstick.whole)
            near = f"the nearest is candidate {choice.candidate.id}: {told}"
            raise RunError(f"no candidate of {self.run_dir} keeps {wanted}; {near}")
        tuned = [one for one in self.solutions if one.id == choice.candidate.id]
        return tuned[0] if tuned else self._refitted(choice, self.yardstick)

    @property
    def network(self) -> nn.Module:
        """The original network, a copy."""
        assert self.yardstick is not None
        return original(self.yardstick.context)

    def _refitted(self, choice: Choice, yardstick: Yardstick) -> Solution:
        one, graph = choice.candidate, yardstick.context.graph
        assert one.train_error is not None
        model = graph.prune(one.genome)
        refit_if_asked(yardstick.context, one.genome, model, final=True)
        role = candidate_name(one.id)
        return Solution(
            role=role,
            id=one.id,
            model=model.eval(),
            genome=one.genome,
            train_error=one.train_error,
            test_error=None,
            flops=one.flops,
            flops_pruned=1.0 - one.flops / yardstick.whole["flops"],
            params=one.params,
            path=None,
            example_input=yardstick.context.example_input,
        )

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
        failed = [f"{role} failed: {why}" for role, why in self.failed.items() if target_number(role) is None]
        return [*failed, *self.asked, *filter(None, [self.advice]), f"run folder: {self.run_dir}"]

    def _pick(self, role: str) -> Solution:
        if role in self.failed:
            raise RunError(
                f"{self.run_dir} has no {role} network, its fine-tuning failed: {self.failed[role]}; "
                "fine-tune it by other options with `deeppruning finetune`, or take one of `solutions`"
            )
        return self.picks[role]
