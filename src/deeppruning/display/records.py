"""The events of a search as JSON values, for machines: their keys are settled, whatever the code says."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deeppruning.searching.events import (
    CandidateDone,
    CandidateRefused,
    EpochDone,
    Event,
    GenerationDone,
    LayersScanned,
    Remark,
    SolutionSaved,
    Started,
    TargetSettled,
)

_SOLUTION = ("role", "id", "path", "train_error", "test_error", "flops", "flops_pruned", "params", "refitted")


def as_record(event: Event) -> tuple[str, Mapping[str, Any]]:
    """An event as its name and its JSON values."""
    if isinstance(event, Remark):
        return "remark", asdict(event)
    if isinstance(event, LayersScanned):
        return "scanned", asdict(event)
    if isinstance(event, CandidateDone):
        return "candidate", _candidate(event)
    if isinstance(event, GenerationDone):
        return "generation", _generation(event)
    if isinstance(event, EpochDone):
        own = {"id": event.id, "roles": list(event.roles), "epochs": event.epochs}
        return "epoch", {**own, **asdict(event.report)}
    if isinstance(event, SolutionSaved):
        values = {name: getattr(event.solution, name) for name in _SOLUTION}
        return "solution", {**values, "path": str(event.solution.path)}
    if isinstance(event, TargetSettled):
        return "target", asdict(event)
    if isinstance(event, CandidateRefused):
        return "refused", asdict(event)
    return "started" if isinstance(event, Started) else "diverged", asdict(event)


def _candidate(event: CandidateDone) -> dict[str, Any]:
    one = event.candidate
    own = {"id": one.id, "generation": one.generation, "fresh": event.fresh, "attempts": event.attempts}
    origin = {"operator": one.operator, "parents": list(one.parents)}
    evaluation = {key: value for key, value in vars(one.known).items() if key != "genome"}
    return {**own, **origin, **evaluation, "kept": int(one.genome.sum())}


def _generation(event: GenerationDone) -> dict[str, Any]:
    picks = [
        {
            "role": role,
            "id": pick.id,
            "error": pick.train_error,
            "cost": pick.cost,
            "flops": pick.flops,
            "flops_pruned": 1.0 - pick.flops / event.original_flops,
        }
        for role, pick in event.picks.items()
    ]
    return {"generation": event.generation, "generations": event.generations, "picks": picks}
