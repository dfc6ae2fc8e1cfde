"""From finished runs to a small record that the repository keeps: figures and options, no weights, no paths.

Example: python experiments/collect.py runs/resnet56-cifar10 --row resnet56-cifar10

A run is only read. Several runs of one row, such as those of several seeds, make one record. Folders that
`deeppruning train` wrote are runs as well.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commands import finetune_command, prune_command
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.reporting.data import collect as shown
from deeppruning.reporting.evidence import latency_ms
from deeppruning.roles import ORIGINAL
from deeppruning.runs import RunFolder, facts
from row_options import HERE
from trained_networks import trained_networks
from trainings import is_training, training_records

RECORDS = HERE / "records"
FORMAT = 1
COLUMNS = ("id", "generation", "flops", "error")  # of every candidate
_FOLDERS = re.compile(r"(?<![\w.:/\\-])(?:[A-Za-z]:|~)?[\\/](?:[^\s\\/'\",;:]+[\\/])*")


def collect(folders: Sequence[Path], row: str) -> dict[str, Any]:
    """The record of a row, from the folders of its runs."""
    if not re.fullmatch(r"\w[\w.-]*", row):
        raise InputError(f"a row is named by letters, digits, - and _, got {row!r}; see experiments/*.toml")
    trainings = [path for path in folders if is_training(path)]
    runs = [run_record(path, row) for path in folders if path not in trainings]
    runs += training_records(trainings)
    return {"format": FORMAT, "row": row, "runs": _without_folders(runs)}


def run_record(path: Path, row: str) -> dict[str, Any]:
    """What is kept of a finished run."""
    with RunFolder.open(path, read_only=True) as run:
        history, config = run.history, run.config
        kept, candidates, epochs = history.facts(), history.candidates(), history.epochs()
    if not kept.get(facts.FINISHED.key):
        raise RunError(f"{path} is not finished; go on with it by `deeppruning resume {path}`")
    evaluated = [row for row in candidates if row.evaluation is not None]
    networks = trained_networks(kept, candidates, epochs)
    for network in networks:
        by = kept.get(facts.training_fact(network["training"]).key)
        if by is not None:
            network["command"] = finetune_command(config, row, network["candidate"], by)
            network["options"] = by
    return {
        "kind": "search",
        "run": path.resolve().name,
        "command": prune_command(config, row),
        "version": run.version,
        "versions": kept.get(facts.VERSIONS.key, {}),
        "seed": config["search"]["seed"],
        "options": _portable(config),
        "test_images": kept.get(facts.TEST_IMAGES.key),
        "original": {**kept[facts.ORIGINAL_FIGURES.key], "latency_ms": latency_ms(kept, ORIGINAL)},
        "target": kept.get(facts.TARGET.key),
        "networks": networks,
        # Added up over all workers; what a search does before its first candidate is not recorded.
        "search_seconds": sum(row.evaluated.seconds for row in evaluated),
        "finetune_seconds": sum(row.seconds for row in epochs),
        "columns": list(COLUMNS),
        "candidates": [[row.id, row.generation, row.flops, row.train_error] for row in evaluated],
        "front": _front(path),
    }


def _front(path: Path) -> list[int]:
    """The candidates that the archive of a guided search holds at its end; the paper's search has none."""
    archive = shown(path)["archive"]
    return list(archive["fronts"][-1]["ids"]) if archive and archive["fronts"] else []


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options without where things lie on one machine."""
    tables = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    tables.get("data", {}).pop("data_dir", None)
    tables.pop("code", None)
    return tables


def _without_folders(value: Any) -> Any:
    """The same with every absolute path cut down to the name of its file, also inside of texts.

    >>> _without_folders({"weights": "/home/me/r56.th", "note": "no '/tmp/x.pt'", "rate": "images/s"})
    {'weights': 'r56.th', 'note': "no 'x.pt'", 'rate': 'images/s'}
    """
    if isinstance(value, Mapping):
        return {key: _without_folders(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(entry) for entry in value]
    return _FOLDERS.sub("", value) if isinstance(value, str) else value


def write_record(record: Mapping[str, Any], folder: Path = RECORDS) -> Path:
    """Write a record as JSON, a line for every candidate, so that it can be read and compared."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False)
    # Lists of plain numbers on one line each.
    text = re.sub(r"\[[^\[\]{}\"]*\]", lambda match: " ".join(match[0].split()), text)
    path = folder / f"{record['row']}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def main() -> None:
    """Write the record of a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--row", required=True, metavar="NAME", help="as its file of options is named")
    arguments = parser.parse_args()
    try:
        print(write_record(collect(arguments.runs, arguments.row)))
    except DeepPruningError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
