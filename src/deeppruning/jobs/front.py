"""What a search alone hands back: every candidate, and a thin, refitted network for any limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from torch import nn

from deeppruning.errors import InputError, RunError
from deeppruning.evolution.selection import Picks
from deeppruning.genome import Genome
from deeppruning.jobs.network_table import SEARCH_ERROR, NetworkRow, NetworkTable
from deeppruning.jobs.saving import save
from deeppruning.limits import Limits
from deeppruning.roles import ORIGINAL, ROLES, candidate_name
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import Context, refit_if_asked
from deeppruning.searching.proving import Proofs

_MARK = "_deeppruning_candidate"  # the attribute by which a network tells which candidate it is


@dataclass(frozen=True, eq=False)
class ThinNetwork:
    """A candidate of a search; its network is made when it is asked for."""

    candidate: Candidate
    context: Context

    def __repr__(self) -> str:
        one = self.candidate
        return f"ThinNetwork(candidate {one.id}, {self.flops:,} FLOPs, {self.params:,} parameters)"

    @property
    def genome(self) -> Genome:
        """Which filters stay."""
        return self.candidate.genome

    @property
    def flops(self) -> int:
        """Multiply-adds for one input."""
        return self.candidate.flops

    @property
    def params(self) -> int:
        """Parameters."""
        return self.candidate.params

    @property
    def error(self) -> float | None:
        """How far it is from the original on inputs that no refit has seen, in the search."""
        return self.candidate.train_error

    @cached_property
    def model(self) -> nn.Module:
        """The thin network, refitted on all inputs of the search, in evaluation mode."""
        thin = self.context.graph.prune(self.genome)
        refit_if_asked(self.context, self.genome, thin, final=True)
        setattr(thin, _MARK, self.candidate.id)  # goes along with copies, and is no part of its weights
        return thin.eval()


@dataclass(frozen=True, eq=False)
class Front:
    """All that a search tried; `at` finds the best within a limit, and there are the three picks.

    The cut of every network that is handed out is proven; where that fails, the next best is taken.
    """

    candidates: Sequence[Candidate] = field(repr=False)
    picks: Picks[Candidate]
    context: Context = field(repr=False)
    proofs: Proofs = field(repr=False)
    original_flops: int
    original_params: int
    description: Mapping[str, str] = field(default_factory=dict, repr=False)  # written beside a network

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> NetworkTable:
        """The original, from which nothing has drifted, and the picks."""
        rows = [NetworkRow(ORIGINAL, None, 0.0, self.original_flops, 0.0, self.original_params)]
        for role, one in sorted(self.picks.items(), key=lambda pick: ROLES.index(pick[0])):
            saved = 1.0 - one.flops / self.original_flops
            rows.append(NetworkRow(role, one.id, one.train_error, one.flops, saved, one.params))
        share = all(row.test_error is None or row.test_error <= 1.0 for row in rows)
        return NetworkTable(rows, SEARCH_ERROR, share)

    @property
    def knee(self) -> ThinNetwork:
        """The best compromise of error and cost."""
        return self._thin(self.picks.knee)

    @property
    def heavy(self) -> ThinNetwork:
        """The one nearest to the original."""
        return self._thin(self.picks.heavy)

    @property
    def light(self) -> ThinNetwork:
        """The cheapest one."""
        return self._thin(self.picks.light)

    def at(self, *, flops: float | str | None = None, params: float | str | None = None) -> ThinNetwork:
        """The best candidate within limits: 0.4 or "40%" of the original's, 100_000 or "100k"."""
        given = {"flops": flops, "params": params}
        asked_for = Limits.of({name: value for name, value in given.items() if value is not None})
        if not asked_for:
            raise InputError("say what the network may cost: at(flops=0.4), at(params=100_000) or both")
        limits = asked_for.most({"flops": self.original_flops, "params": self.original_params})
        usable = [one for one in self.candidates if one.train_error is not None]
        usable = [one for one in usable if one.id not in self.proofs.refused]
        within = [one for one in usable if all(getattr(one, name) <= limit for name, limit in limits.items())]
        if not within:
            asked = " and ".join(f"{limit:,.0f} {name}" for name, limit in limits.items())
            least = ", ".join(f"{min(getattr(one, name) for one in usable):,} {name}" for name in limits)
            raise InputError(
                f"no candidate of this search has at most {asked}; the least are {least}: search from a "
                "lower share on (SearchConfig(low=...))"
            )
        best_first = sorted(within, key=lambda one: (one.known.judged, one.known.cost, one.id))
        chosen = next((one for one in best_first if self.proofs.hold(one)), None)
        if chosen is None:
            raise RunError(self.proofs.why_none())
        return self._thin(chosen)

    def best(self, *, flops: float | str | None = None, params: float | str | None = None) -> ThinNetwork:
        """The same as `at`, under the name that it has on a result."""
        return self.at(flops=flops, params=params)

    def save(
        self, model: nn.Module | ThinNetwork, path: str | Path, *, test_error: float | None = None
    ) -> Path:
        """Write a network of this search, trained since in whatever way, as a run writes its own.

        `front.save(front.knee, "knee.safetensors")` writes one as it is. `dp.load(path, original)` reads it
        back. A network inside another (DataParallel, torch.compile, a module of Lightning) is found there.
        """
        module = model.model if isinstance(model, ThinNetwork) else model
        ids = {getattr(one, _MARK) for one in module.modules() if hasattr(one, _MARK)}
        known = {one.id: one for one in self.candidates}
        if len(ids) != 1 or not ids <= known.keys():
            raise InputError(
                f"{type(module).__name__} is not one network of this search: give one that came from at(), "
                "knee, heavy or light, or use dp.save with the graph and genome that it was cut by"
            )
        chosen = known[ids.pop()]
        roles = [role for role, pick in self.picks.items() if pick.id == chosen.id]
        return save(
            module,
            path,
            self.context.graph,
            chosen.genome,
            role=roles[0] if roles else candidate_name(chosen.id),
            error=chosen.train_error,
            test_error=test_error,
            description={"candidate": str(chosen.id), **self.description},
        )

    def _thin(self, candidate: Candidate) -> ThinNetwork:
        return ThinNetwork(candidate, self.context)
