"""What a search gives back: `Result` of a whole run, `Front` of a search without labels."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from deeppruning.amounts import percent
from deeppruning.errors import InputError, RunError
from deeppruning.jobs.network_table import SEARCH_ERROR, TEST_ERROR, NetworkRow, NetworkTable
from deeppruning.jobs.solution import CANDIDATE_MARK, Solution, original_network, save
from deeppruning.limits import Limits
from deeppruning.roles import HEAVY, KNEE, LIGHT, ORIGINAL, TARGET, candidate_name, in_order, target_number
from deeppruning.runs import Candidate
from deeppruning.targets.choice import Choice, CostMeter, choose, describe, thin_candidates


@dataclass(frozen=True, eq=False)
class Original:
    """The original network, measured."""

    train_error: float | None  # on the search's sample
    test_error: float | None
    flops: int
    params: int
    doubt: str = ""  # a warning that it is hardly better than guessing
    failure: str = ""  # why it could not be tested


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Networks:
    """What `Result` and `Front` have in common: solutions by role, and the best of all candidates."""

    original: Original
    picks: Mapping[str, Solution]  # by role
    candidates: Sequence[Candidate]
    meter: CostMeter  # measures costs for `best`

    @property
    def knee(self) -> Solution:
        """The best compromise between error and cost."""
        return self._solution_of_role(KNEE)

    @property
    def heavy(self) -> Solution:
        """The most accurate one in the search."""
        return self._solution_of_role(HEAVY)

    @property
    def light(self) -> Solution:
        """The cheapest one."""
        return self._solution_of_role(LIGHT)

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """Heavy, knee and light, from the most accurate to the cheapest, then targets."""
        return tuple(self.picks[role] for role in in_order(self.picks))

    @property
    def network(self) -> nn.Module:
        """A copy of the original network."""
        return original_network(self.meter.context)

    def best(
        self,
        *,
        flops: float | str | None = None,
        params: float | str | None = None,
        size: float | str | None = None,
        latency: float | str | None = None,
        error: float | str | None = None,
    ) -> Solution:
        """The best of all candidates within limits: best(flops=0.4), best(size="1MB", latency="5ms").

        `flops`, `params` and `size` (bytes of the weights) are shares of the original's up to 1 or "40%", or
        counts: 100_000, "100k", "1MB". `error` limits the error in the search, before any fine-tuning:
        0.08, "8%", or "+1%" above the original's; without labels it is the drift. If the error alone is
        limited, the cheapest candidate within it is chosen.

        A candidate that is not among `solutions` comes refitted, neither trained nor saved. `dp.pick`
        fine-tunes and saves one, and limits the error after fine-tuning.
        """
        amounts = {"flops": flops, "params": params, "size": size, "latency": latency, "error": error}
        limits = Limits.of({name: amount for name, amount in amounts.items() if amount is not None})
        if not limits:
            raise InputError("say what the network may cost: best(flops=0.4), best(params=100_000) or both")
        candidates = self._candidates_within_error(limits) if limits.bounds_error else self.candidates
        if limits.objective is None:
            candidate = self._cheapest_proven(candidates)
        else:
            choice = choose(candidates, limits, self.meter)
            if not choice.met:
                raise RunError(self._why_unmet(limits, choice))
            candidate = choice.candidate
        solutions = [solution for solution in self.solutions if solution.id == candidate.id]
        return solutions[0] if solutions else Solution.of_candidate(candidate, self.meter.context)

    def _candidates_within_error(self, limits: Limits) -> list[Candidate]:
        before = self.original.train_error
        if before is None and limits.worse is not None:
            raise InputError("the original's error is not known; limit the error itself: error=0.08")
        most = limits.most_error(before or 0.0)
        thin = thin_candidates(self.candidates)
        within = [each for each in thin if each.evaluated.objectives[0] <= most]
        if not within:
            nearest = min(thin, key=lambda each: (each.evaluated.objectives[0], each.id))
            raise RunError(
                f"no candidate keeps {limits} in the search; the nearest is candidate {nearest.id} with "
                f"{percent(nearest.evaluated.objectives[0])}. Fine-tuning lowers errors: dp.pick(run_dir, "
                f"..., target={limits.to_table()}) trains candidates until one keeps the limit"
            )
        return within

    def _cheapest_proven(self, candidates: Sequence[Candidate]) -> Candidate:
        def cost(candidate: Candidate) -> tuple[float, float, int]:
            return candidate.evaluated.objectives[1], candidate.evaluated.judged, candidate.id

        for candidate in sorted(candidates, key=cost):
            if self.meter.proofs.hold(candidate):
                return candidate
        raise RunError(self.meter.proofs.why_none())

    def _why_unmet(self, limits: Limits, choice: Choice) -> str:
        reached = describe(limits, choice.figures, self.meter.whole)
        refused = self.meter.proofs.refused
        return (
            f"no candidate keeps {limits}; the nearest is candidate {choice.candidate.id}: {reached}. "
            "To search for smaller networks, lower SearchConfig(low=...)"
            + (f". {len(refused)} were refused, the first: {next(iter(refused.values()))}" if refused else "")
        )

    def _table_of_networks(self) -> NetworkTable:
        """The networks side by side; with their errors in the search where there was no test."""
        networks: list[Original | Solution] = [self.original, *self.solutions]
        tested = any(network.test_error is not None for network in networks)
        errors = [network.test_error if tested else network.train_error for network in networks]
        whole = self.original
        rows = [NetworkRow(ORIGINAL, None, errors[0], whole.flops, 0.0, whole.params, failure=whole.failure)]
        rows += [
            NetworkRow(each.role, each.id, error, each.flops, each.flops_pruned, each.params)
            for each, error in zip(self.solutions, errors[1:], strict=True)
        ]
        share = all(0.0 <= error <= 1.0 for error in errors if error is not None)
        return NetworkTable(rows, TEST_ERROR if tested else SEARCH_ERROR, share)

    def _solution_of_role(self, role: str) -> Solution:
        return self.picks[role]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Networks):
    """The outcome of a run: the networks to choose from, and every candidate that was evaluated.

    It prints as a table; in a notebook it is shown above a plot of all candidates. If fine-tuning of a pick
    diverged at every learning rate, `failed` has the reason, and accessing the pick raises RunError.
    """

    failed: Mapping[str, str]  # role -> why there is no such solution
    run_dir: Path
    target_notes: Sequence[str] = ()  # the outcome of each target, in words
    advice: str = ""  # which network to take and why, in one sentence
    advised: str | None = None  # its role
    plot: Callable[[Path], str] | None = None  # draws the candidates of a run as SVG, for a notebook

    def __repr__(self) -> str:
        return "\n".join([self._table_of_networks().text(), *self._remarks_below_table()])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{html.escape(line)}</p>" for line in self._remarks_below_table())
        picture = "" if self.plot is None else self.plot(self.run_dir)
        return f"<div>{self._table_of_networks().html()}{remarks}{picture}</div>"

    @property
    def target(self) -> Solution:
        """The network that meets the target; the first one if there are several."""
        if TARGET in self.picks:
            return self.picks[TARGET]
        why = self.failed.get(TARGET) or (
            'no limits were given; use prune(..., target={"flops": 0.4}), or choose afterwards with `best` '
            "or `deeppruning pick`"
        )
        raise RunError(f"{self.run_dir} has no target network: {why}")

    @property
    def targets(self) -> tuple[Solution, ...]:
        """All networks that were chosen for targets, in the order of the requests."""
        return tuple(each for each in self.solutions if target_number(each.role) is not None)

    @property
    def recommended(self) -> Solution | None:
        """The one to take, for the reason in `advice`; None where none can be recommended."""
        return None if self.advised is None else self.picks.get(self.advised)

    def _remarks_below_table(self) -> list[str]:
        failed = [f"{role} failed: {why}" for role, why in self.failed.items() if target_number(role) is None]
        return [*failed, *self.target_notes, *filter(None, [self.advice]), f"run folder: {self.run_dir}"]

    def _solution_of_role(self, role: str) -> Solution:
        if role in self.failed:
            raise RunError(
                f"{self.run_dir} has no {role} network, its fine-tuning failed: {self.failed[role]}; "
                "fine-tune it with other options by `deeppruning finetune`, or take one of `solutions`"
            )
        return self.picks[role]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Front(Networks):
    """The outcome of a search without labels: every candidate, and a refitted network for any limit.

    `at` and `best` find the best network within limits, `knee`, `heavy` and `light` are the three picks. The
    cut of every network is proven before it is returned; where that fails, the next best is taken.
    """

    description: Mapping[str, str] = field(default_factory=dict)  # saved with a network

    @classmethod
    def of_search(
        cls,
        candidates: Sequence[Candidate],
        picks: Mapping[str, Candidate],
        meter: CostMeter,
        description: Mapping[str, str],
    ) -> Front:
        """The front of a search that is over."""
        return cls(
            original=Original(0.0, None, meter.whole["flops"], meter.whole["params"]),
            picks={role: Solution.of_candidate(pick, meter.context, role) for role, pick in picks.items()},
            candidates=candidates,
            meter=meter,
            description=description,
        )

    def __repr__(self) -> str:
        return self._table_of_networks().text()

    def _repr_html_(self) -> str:
        return self._table_of_networks().html()

    def at(self, *, flops: float | str | None = None, params: float | str | None = None) -> Solution:
        """The best candidate within limits: 0.4 or "40%" of the original's, 100_000 or "100k"."""
        return self.best(flops=flops, params=params)

    def save(self, model: nn.Module | Solution, path: str | Path, *, test_error: float | None = None) -> Path:
        """Save a network of this search, trained since in your own loop, for `dp.load(path, original)`.

        `front.save(front.knee, "knee.safetensors")` saves one as it is. `model` may be wrapped in another
        module: DataParallel, torch.compile, a Lightning module.
        """
        module = model.model if isinstance(model, Solution) else model
        ids = {getattr(each, CANDIDATE_MARK) for each in module.modules() if hasattr(each, CANDIDATE_MARK)}
        candidates = {candidate.id: candidate for candidate in self.candidates}
        if len(ids) != 1 or not ids <= candidates.keys():
            raise InputError(
                f"{type(module).__name__} is not one network of this search: give one that came from at(), "
                "best(), knee, heavy or light, or use dp.save with the graph and genome that it was cut by"
            )
        candidate = candidates[ids.pop()]
        roles = [pick.role for pick in self.picks.values() if pick.id == candidate.id]
        return save(
            module,
            path,
            self.meter.context.graph,
            candidate.genome,
            role=roles[0] if roles else candidate_name(candidate.id),
            error=candidate.train_error,
            test_error=test_error,
            description={"candidate": str(candidate.id), **self.description},
        )
