"""The lines of the table of networks that are small by design, trained from scratch, beside our knees."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cells import NOT_RUN, PAPER, Line, milliseconds, percent, share, source
from deeppruning.amounts import amount, duration
from deeppruning.roles import KNEE
from pick_lines import longest_training


@dataclass(frozen=True)
class TrainedLine(Line):
    """A network trained from scratch, or one that was made thin."""

    TITLES = (
        "network", "data", "who", "test error", "FLOPs", "parameters", "latency", "epochs", "time", "seed",
        "source",
    )  # fmt: skip
    who: str
    error: str
    flops: str = ""
    params: str = ""
    latency: str = ""
    epochs: str = ""
    time: str = ""
    seed: str = ""
    source: str = ""


def trained_lines(
    paper: Sequence[Mapping[str, Any]], ours: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[str, str, TrainedLine]]:
    """Name, data and line of networks that are trained from scratch, ours below the paper's."""
    waiting = {one["model"]: one["name"] for one in paper}
    for one in paper:
        epochs, table = str(one["epochs"]), f"Table {one['table']}"
        yield one["name"], one["data"], TrainedLine(PAPER, percent(one["error"]), epochs=epochs, source=table)
    for row, run in ours:
        line = TrainedLine(
            "ours, from scratch",
            share(run["test_error"]),
            *_costs(run),
            _epochs(run["stages"]),
            duration(run["seconds"]),
            str(run["seed"]),
            source(row),
        )
        yield waiting.pop(run["model"], run["model"]), run["data"], line
    for name in waiting.values():
        yield name, "", TrainedLine("ours, from scratch", NOT_RUN)


def knee_lines(row: str, run: Mapping[str, Any]) -> Iterator[TrainedLine]:
    """The knee of a search in the same columns."""
    knee = longest_training(run["networks"], KNEE)
    if knee is None:
        return
    yield TrainedLine(
        f"ours, the {KNEE} ({knee['candidate']})",
        share(knee["test_error"]),
        *_costs(knee),
        str(knee["epochs"]),
        duration(knee["seconds"]),
        str(run["seed"]),
        source(row),
    )


def _costs(network: Mapping[str, Any]) -> tuple[str, str, str]:
    return _millions(network["flops"]), _millions(network["params"]), milliseconds(network["latency_ms"])


def _epochs(stages: Sequence[Mapping[str, Any]]) -> str:
    """How many in all, and the images of each stage where there are several.

    >>> _epochs([{"epochs": 4, "options": {"image_shape": [3, 16, 16]}}])
    '4'
    >>> sizes = (16, 32)
    >>> _epochs([{"epochs": 4, "options": {"image_shape": [3, side, side]}} for side in sizes])
    '8: 4 at 16 pixels, 4 at 32 pixels'
    """
    whole = str(sum(stage["epochs"] for stage in stages))
    if len(stages) == 1:
        return whole
    parts = (f"{stage['epochs']} at {stage['options']['image_shape'][-1]} pixels" for stage in stages)
    return f"{whole}: {', '.join(parts)}"


def _millions(count: int) -> str:
    """In one unit, so that networks can be compared."""
    return amount(count, like=1e6)
