"""Everything the page and the plots show, as one plain dict of JSON values read from a run folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeppruning.reporting.evidence import with_evidence
from deeppruning.reporting.recommendation import recommend
from deeppruning.reporting.section import Source, collect_sections
from deeppruning.reporting.standing import progress, standing, verdict
from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import HISTORY, RunFolder
from deeppruning.system.files import without_folders
from deeppruning.system.versions import versions_line
from deeppruning.version import __version__

NOTHING: dict[str, Any] = {"candidates": [], "picks": {}, "epochs": [], "facts": {}}


def collect(run_dir: Path | str) -> dict[str, Any]:
    """The current contents of a run; it may be running, and is not disturbed."""
    with RunFolder.open(run_dir, read_only=True) as run:
        started = (run.path / HISTORY).is_file()
        snapshot = run.history.snapshot() if started else NOTHING
    with readable_errors(run.path / HISTORY):  # rows that contradict each other
        return _collect_report_data(run, Path(run_dir).resolve().name, snapshot)


def _collect_report_data(run: RunFolder, name: str, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    recorded = snapshot["facts"]
    data = collect_sections(Source(run, recorded, snapshot), _about_run(run, name, recorded))
    waiting = len(snapshot["candidates"]) - len(data["candidates"])
    data |= standing(run.path, data, waiting=waiting, facts=recorded)
    scan, tuning = recorded.get(facts.SCAN.key), recorded.get(facts.TUNING.key, ())
    data["progress"] = progress(data, snapshot["epochs"], scan, tuning)
    advice = recommend(recorded)
    data["recommended"] = advice.role if advice else None
    data["verdict"] = advice.text if advice else verdict(data)
    doubt = (data["original"] or {}).get("doubt")
    data["warned"] = bool(doubt)
    if doubt and advice is None:
        data["verdict"] = f"{doubt} {data['verdict']}"
    data["remark"] = recorded.get(facts.AUGMENTATION.key, {}).get("note", "")
    return data


def _about_run(run: RunFolder, name: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a run before its candidates and networks are looked at."""
    config, search = run.config, run.config.get("search", {})
    model, data = (config.get(table, {}) for table in ("model", "data"))
    titles = (model.get("spec") or "A network", data.get("data"))
    evaluations = None
    if "offspring" in search and "generations" in search:
        evaluations = int(3 + search["offspring"] * search["generations"])
    return {
        "run": name,
        "by_drift": "thin" in config,  # of the outputs, as there are no labels
        "title": " on ".join(without_folders(str(part)) for part in titles if part),
        "version": run.version,
        "page_version": __version__,
        "selection": search.get("selection", "plus"),
        "evaluations": evaluations,
        "generations": search.get("generations"),
        "original": with_evidence(ORIGINAL, recorded.get(facts.ORIGINAL_FIGURES.key), recorded),
        "test_images": recorded.get(facts.TEST_IMAGES.key),
        "config": without_folders(config),
        "targets": facts.targets_in(recorded) or _awaited_target(config),
        "refused": [facts.refusal_line(id_, why) for id_, why in facts.refused_in(recorded).items()],
        "notes": recorded.get(facts.GRAPH_NOTES.key, []),
        "versions": _versions_of_run(recorded),
    }


def _versions_of_run(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The versions that a run was computed with, and the fast multiples of filters that it found."""
    later = [versions_line(versions) for versions in recorded.get(facts.CONTINUED.key, [])]
    multiples = recorded.get(facts.MULTIPLES.key, {})
    return {
        **recorded.get(facts.VERSIONS.key, {}),
        **({"continued with": later} if later else {}),
        **{f"fast multiples in {runtime}": str(multiple) for runtime, multiple in multiples.items()},
    }


def _awaited_target(config: Mapping[str, Any]) -> dict[str, Any]:
    """A target that is not settled yet, in the form of the fact that will hold it."""
    limits = config.get("target")
    if not isinstance(limits, Mapping) or not limits:
        return {}
    asked = ", ".join(f"{name}={limit}" for name, limit in limits.items())
    note = "chosen at the end of the search"
    return {facts.TARGET.key: {"asked": asked, "id": None, "met": None, "note": note}}
