"""The archive of a guided search in a line: how full it is, what it holds at three places, who filled it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deeppruning.amounts import percent
from deeppruning.errors import RunError
from deeppruning.runs.archive_replay import CostRange, Replay, Told, cost_range, replay, sources
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate


def range_of(run: str) -> CostRange | None:
    """The range of cost of a run's archive; None where it keeps none, or its options cannot be read."""
    # A display stops no run.
    with suppress(RunError), RunFolder.open(run, read_only=True) as folder:
        return cost_range(folder.config.get("search", {}))
    return None


def growth_line(within: CostRange, candidates: Sequence[Candidate], original_flops: int) -> str:
    """Bins filled, how many of them anew in the last generation, and error and FLOPs at three of them."""
    by_id = {candidate.id: candidate for candidate in candidates}
    found = replay(within, map(Told.of, candidates))
    *earlier, last = found.fronts.values()
    new = len(set(last) - set(earlier[-1] if earlier else ()))
    spots = [
        f"{percent(by_id[id_].train_error, 1)} at -{percent(1 - by_id[id_].flops / original_flops, 0)} FLOPs"
        for id_ in _three(found)
    ]
    return f"archive {len(last)}/{within.bins} bins (+{new}){': ' if spots else ''}{', '.join(spots)}"


def _three(found: Replay) -> list[int]:
    """Those nearest to a quarter, half and three quarters of the bins: the same places each time."""
    bins = found.archive.bins
    places = [found.archive.near(bins * quarter // 4, 0)[:1] for quarter in (1, 2, 3)]
    return list(dict.fromkeys(id_ for place in places for id_ in place))


def sources_line(run_dir: Path) -> str:
    """How many candidates of each origin entered the archive; empty for a run without one."""
    with RunFolder.open(run_dir, read_only=True) as run:
        within = cost_range(run.config.get("search", {}))
        if within is None:
            return ""
        told = [Told.of(one) for one in run.history.candidates() if one.evaluation is not None]
    found = sources(told, replay(within, told))
    return ", ".join(f"{one.name} {one.entered} of {one.tried}" for one in found)
