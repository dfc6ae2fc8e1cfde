"""Everything the page and the plots show, as one plain dict of JSON values read from a run folder."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from deeppruning.reporting.measured import with_evidence
from deeppruning.reporting.progress import progress
from deeppruning.reporting.recommendation import recommend
from deeppruning.reporting.section import Source, collect_sections
from deeppruning.reporting.words import standing, verdict
from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import HISTORY, RunFolder
from deeppruning.system.versions import told_versions
from deeppruning.version import __version__

NOTHING: dict[str, Any] = {"candidates": [], "picks": [], "epochs": [], "facts": {}}


def collect(run_dir: Path | str) -> dict[str, Any]:
    """What there is to show of a run at this instant; the run may be going on, and is not disturbed."""
    with RunFolder.open(run_dir, read_only=True) as run:
        started = (run.path / HISTORY).is_file()
        snapshot = run.history.snapshot() if started else NOTHING
    with readable_errors(run.path / HISTORY):  # rows that contradict each other
        return _collect(run, str(run_dir), snapshot)


def _collect(run: RunFolder, shown: str, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    kept, config = snapshot["facts"], run.config
    search = config.get("search", {})
    about = {
        "run": Path(shown).resolve().name,
        "title": _title(config),
        "version": run.version,
        "page_version": __version__,
        "selection": search.get("selection", "plus"),
        "evaluations": _evaluations(search),
        "generations": search.get("generations"),
        "original": with_evidence(ORIGINAL, kept.get(facts.ORIGINAL_FIGURES.key), kept),
        "test_images": kept.get(facts.TEST_IMAGES.key),
        "config": _without_places(config),
        "targets": facts.targets_in(kept) or _awaited(config),
        "refused": [facts.told_refused(id_, why) for id_, why in facts.refused_in(kept).items()],
        "notes": kept.get(facts.GRAPH_NOTES.key, []),
        "versions": {**_versions(kept), **_multiples(kept)},
    }
    data = collect_sections(Source(run, kept, snapshot), about)
    waiting = len(snapshot["candidates"]) - len(data["candidates"])
    data |= standing(run.path, data, waiting=waiting, facts=kept)
    scan, tuning = kept.get(facts.SCAN.key), kept.get(facts.TUNING.key, ())
    data["progress"] = progress(data, snapshot["epochs"], scan, tuning)
    advice = recommend(kept)
    data["recommended"] = advice.role if advice else None
    data["verdict"] = advice.text if advice else verdict(data)
    doubt = (data["original"] or {}).get("doubt")
    data["warned"] = bool(doubt)
    if doubt and advice is None:
        data["verdict"] = f"{doubt} {data['verdict']}"
    data["remark"] = kept.get(facts.AUGMENTATION.key, {}).get("note", "")
    return data


def _versions(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What the run was computed by, and where it went on with something else."""
    since = [told_versions(versions) for versions in kept.get(facts.CONTINUED.key, [])]
    return {**kept.get(facts.VERSIONS.key, {}), **({"went on with": since} if since else {})}


def _awaited(config: Mapping[str, Any]) -> dict[str, Any]:
    """A target that was asked for and is not settled yet, in the form of the fact that will tell of it."""
    limits = config.get("target")
    if not isinstance(limits, Mapping) or not limits:
        return {}
    asked = ", ".join(f"{name}={limit}" for name, limit in limits.items())
    note = "chosen when the search is over"
    return {facts.TARGET.key: {"asked": asked, "id": None, "met": None, "note": note}}


def _multiples(kept: Mapping[str, Any]) -> dict[str, str]:
    """What was measured to be fast where the run began."""
    found = kept.get(facts.MULTIPLES.key, {})
    return {f"fast multiples in {runtime}": str(multiple) for runtime, multiple in found.items()}


def _title(config: Mapping[str, Any]) -> str:
    model, data = (config.get(table, {}) for table in ("model", "data"))
    parts = [model.get("spec") or "A network", data.get("data")]
    return " on ".join(_without_folders(str(part)) for part in parts if part)


def _without_places(value: Any) -> Any:
    """Options as a page shows them, which may be passed on: files and folders by their own names."""
    if isinstance(value, Mapping):
        return {key: _without_places(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_places(entry) for entry in value]
    return _without_folders(value) if isinstance(value, str) else value


def _without_folders(name: str) -> str:
    """A file or folder by its own name: where it lies on this machine tells a reader nothing.

    >>> _without_folders("/home/me/nets.py:tiny"), _without_folders("resnet20")
    ('nets.py:tiny', 'resnet20')
    """
    for kind in (PurePosixPath, PureWindowsPath):
        if kind(name).is_absolute():
            return kind(name).name or name
    return name


def _evaluations(search: Mapping[str, Any]) -> int | None:
    if "offspring" not in search or "generations" not in search:
        return None
    return int(3 + search["offspring"] * search["generations"])
