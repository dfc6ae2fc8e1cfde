"""The card of a pruned network: README.md of a folder for the Hugging Face Hub."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeppruning.amounts import amount, percent
from deeppruning.jobs.network_table import NetworkRow, read_rows
from deeppruning.roles import ORIGINAL
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.folder import HISTORY
from deeppruning.system.files import without_folders
from deeppruning.system.versions import versions_line
from deeppruning.version import __version__


def card_of(metadata: Mapping[str, str], run_dir: Path | None, kind: str) -> str:
    """The card as Markdown, with the header that the hub reads; all figures come from the run.

    `kind` is the class of the network, its name where it has no other.
    """
    role = metadata.get("role", "thin")
    rows, recorded, config = _read_for_card(run_dir, role)
    names = _names_on_card(metadata, config, kind)
    body = [
        f"# {names['model']}, pruned",
        _card_summary(metadata, names, recorded, config),
        _card_table(metadata, rows, recorded),
        "## How to load it",
        _loading_example(metadata),
        "## Limits",
        _card_limitations(metadata, names),
        "## Licence",
        "The weights are derived from those of the original network. **To be filled in:** the licence of the "
        "original and of its training data, in the field `license` above and here.",
    ]
    return "\n\n".join([_card_header(metadata, names), *filter(None, body)]) + "\n"


def _read_for_card(
    run_dir: Path | None, role: str
) -> tuple[list[NetworkRow], dict[str, Any], dict[str, Any]]:
    """The rows of the original and this network, the facts and the options of the run, if there is one."""
    if run_dir is None or not (run_dir / HISTORY).is_file():
        return [], {}, {}
    with RunFolder.open(run_dir, read_only=True) as run:
        recorded = run.history.facts()
        is_saved = facts.solution_fact(role).key in recorded
        return read_rows(run, [role] if is_saved else []), recorded, without_folders(dict(run.config))


def _names_on_card(metadata: Mapping[str, str], config: Mapping[str, Any], kind: str) -> dict[str, str]:
    architecture = json.loads(metadata.get("architecture", "{}")).get("name")
    model = architecture or config.get("model", {}).get("spec") or kind
    return {"model": str(model), "data": str(config.get("data", {}).get("data") or "")}


def _card_header(metadata: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The YAML header; texts are written as JSON, which YAML reads."""
    error = json.loads(metadata.get("test_error", "null"))
    lines = [
        "---",
        "library_name: deeppruning",
        "license: other",
        "license_name: to-be-filled-in",
        "pipeline_tag: image-classification" if "classes" in metadata else "",
        "tags:",
        "- pruning",
        "- structured-pruning",
        "- deeppruning",
    ]
    if error is not None and "classes" in metadata and names["data"]:
        lines += [
            "model-index:",
            f"- name: {json.dumps(names['model'] + ', pruned')}",
            "  results:",
            "  - task:",
            "      type: image-classification",
            "    dataset:",
            f"      name: {json.dumps(names['data'])}",
            f"      type: {json.dumps(names['data'])}",
            "    metrics:",
            "    - type: accuracy",
            f"      value: {round(1.0 - error, 6)}",
            "      name: test accuracy",
        ]
    return "\n".join([*filter(None, lines), "---"])


def _card_summary(
    metadata: Mapping[str, str],
    names: Mapping[str, str],
    recorded: Mapping[str, Any],
    config: Mapping[str, Any],
) -> str:
    """What was pruned, how it was searched and tuned, in a paragraph."""
    on = f" on {names['data']}" if names["data"] else ""
    search = config.get("search", {})
    text = f"Filters of {names['model']}{on} were removed by DeepPruningES {__version__}"
    if search:
        text += (
            f": a {search.get('strategy', '')} search evaluated candidates by "
            f"{search.get('evaluation', '')}, and this one ({metadata.get('role', 'thin')}) "
            f"{_how_tuned(metadata, recorded, config.get('finetune', {}))}"
        )
    elif "refitted" in metadata:
        text += ". Its weights were computed in closed form from inputs without labels; it was not trained"
    return f"{text}. The network is smaller and dense: it needs no sparse kernels and no masks."


def _how_tuned(metadata: Mapping[str, str], recorded: Mapping[str, Any], finetune: Mapping[str, Any]) -> str:
    """What was done to the weights of a network of a run after its cut.

    >>> _how_tuned({}, {}, {"epochs": 0.25}), _how_tuned({}, {}, {"minutes": 10.0})
    ('was fine-tuned for 0.25 epochs', 'was fine-tuned for 10 minutes')
    """
    if "refitted" in metadata:
        return "has the weights from before fine-tuning, which did not help"
    training = f"candidate-{metadata.get('candidate', '')}"
    others = facts.trainings_in(recorded, training)
    if others and metadata.get("role") == training:  # fine-tuned by options of its own
        finetune = others[0] if len(others) == 1 else {}
    epochs, minutes = finetune.get("epochs"), finetune.get("minutes")
    too_short = minutes is not None and recorded.get(facts.plan_fact(training).key, {}).get("epochs") == 0
    if epochs == 0 or too_short:
        return "was not trained after its cut"
    if epochs is None and minutes is None:
        return "was fine-tuned"
    how_long = f"{minutes:g} minute" if epochs is None else f"{epochs:g} epoch"
    return f"was fine-tuned for {how_long}{'' if 1 in (epochs, minutes) else 's'}"


def _card_table(metadata: Mapping[str, str], rows: list[NetworkRow], recorded: Mapping[str, Any]) -> str:
    """The figures of the network beside the original's, as Markdown."""
    if not rows:
        costs = (
            f"{int(metadata['flops']):,} multiply-adds for one input, {int(metadata['params']):,} parameters"
        )
        error = json.loads(metadata.get("test_error", "null"))
        return f"{costs}." if error is None else f"{costs}, test error {percent(error)}."
    original, own = rows[0], rows[-1]
    saved = f"{amount(own.flops)} (-{percent(own.flops_pruned, 1)})"
    cells = [
        ("test error", _error_cell(original), _error_cell(own)),
        ("FLOPs (multiply-adds)", amount(original.flops), saved),
        ("parameters", f"{original.params:,}", f"{own.params:,}"),
        ("size of float32 weights", f"{4 * original.params:,} bytes", f"{4 * own.params:,} bytes"),
    ]
    note = ""
    if original.latency_seconds is not None and own.latency_seconds is not None:
        times = [f"{1000 * row.latency_seconds:.3g} ms" for row in (original, own) if row.latency_seconds]
        cells.append(("latency", times[0], times[-1]))
        machine = versions_line(recorded.get(facts.VERSIONS.key, {}))
        note = f"\n\nLatency: one input, one CPU thread, batch norms folded, on {machine}."
    images = recorded.get(facts.TEST_IMAGES.key)
    note += f"\n\nThe test error is measured on {images:,} images." if images else ""
    lines = [f"| | {ORIGINAL} | this network |", "|---|---:|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(cell)} |" for cell in cells)]) + note


def _error_cell(row: NetworkRow) -> str:
    return "-" if row.test_error is None else percent(row.test_error)


def _loading_example(metadata: Mapping[str, str]) -> str:
    """Three lines of code; a class of the user's own must be given."""
    own = "" if "architecture" in metadata else ", MyNet()"
    note = "  # MyNet is the class that was pruned" if own else ""
    library = json.loads(metadata.get("architecture", "{}")).get("name", "").rpartition(":")[0]
    needs = "It needs the Python package deeppruning-es" + (f" and {library}." if library else ".")
    lines = [
        "import deeppruning as dp",
        'folder = "."  # where this repository lies, as huggingface_hub.snapshot_download returns it',
        f"network = dp.load(folder{own}){note}",
    ]
    return "\n".join([f"{needs}\n", "```python", *lines, "```"])


def _card_limitations(metadata: Mapping[str, str], names: Mapping[str, str]) -> str:
    lines = ["- The figures hold for the data that they were measured on; measure it on your own."]
    if "image_shape" in metadata:
        channels, height, width = json.loads(metadata["image_shape"])
        lines.append(f"- It was pruned for images of {channels} x {height} x {width}.")
    if "normalization" in metadata:
        lines.append(f"- Inputs are normalised as in training: `{metadata['normalization']}`.")
    lines.append("- It inherits the biases of the original; classes may have lost differently by pruning.")
    return "\n".join(lines)
