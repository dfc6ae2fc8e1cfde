"""What can be done with a finished run: commands that work where they are read, as they stand."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeppruning.errors import RunError
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.system.commands import command, format_to_suggest, how_to_install
from deeppruning.targets.choice import front_of, thin_ones

_USUAL_PERCENT = 40  # of the FLOPs, where the search has come that far


def next_lines(run_dir: Path, role: str | None) -> list[str]:
    """A line for each thing to do next; `role` is the network to take, if it is there; None: none is."""
    with RunFolder.open(run_dir, read_only=True) as run:
        kept, candidates = run.history.facts(), run.history.candidates()
    found = {facts.solution_role(key): figures for key, figures in kept.items()}
    saved = {name: figures for name, figures in found.items() if name and not figures.get("failure")}
    if not saved:
        return []
    steps = []
    if role is not None:
        taken = role if role in saved else next(iter(saved))
        format_ = format_to_suggest()
        steps.append(
            ("a file to deploy", command("export", run_dir, "--solution", taken, "--format", format_))
        )
        if format_ != "onnx":
            steps.append(("what ONNX files need", how_to_install("onnx")))
    steps.append(("is it faster?", command("bench", run_dir)))
    try:
        refused = facts.refused_in(kept)
        thin = [one for one in thin_ones(candidates) if str(one.id) not in refused]
    except RunError:
        thin = []
    steps += _about_candidates(run_dir, kept, thin, {figures["id"] for figures in saved.values()})
    return [f"next ({what}): {line}" for what, line in steps]


def _about_candidates(
    run_dir: Path, kept: Mapping[str, Any], thin: list[Candidate], saved: set[int]
) -> list[tuple[str, str]]:
    """A limit that candidates keep, and the middle one of the best that no solution is made of."""
    steps = []
    whole = kept[facts.ORIGINAL_FIGURES.key]["flops"]
    least = min((one.flops / whole for one in thin), default=1.0)
    percent = max(_USUAL_PERCENT, 10 * math.ceil(10 * least))
    asked = {target["asked"] for target in facts.targets_in(kept).values()}
    limits = [f"flops={share}%" for share in range(percent, 100, 10)]
    if limit := next((one for one in limits if one not in asked), None):
        steps.append(("another limit", command("pick", run_dir, "--target", limit)))
    unfit = {*saved, *map(int, facts.refused_in(kept))}
    others = [one for one in thin if one.id not in unfit]
    best = [one for one in front_of(thin) if one.id not in unfit] or others
    if best:
        one = best[len(best) // 2]
        steps.append(("another candidate", command("finetune", run_dir, "--candidate", one.id)))
    return steps
