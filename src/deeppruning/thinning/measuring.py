"""Two ONNX files side by side in onnxruntime: how far their outputs are apart, and how long they take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeppruning.deploying.onnx_graph import open_session
from deeppruning.errors import InputError
from deeppruning.exporting.bench import speed_limits, summary
from deeppruning.importing.building import SUPPORTED
from deeppruning.importing.file import read_onnx
from deeppruning.importing.trying import run_trials
from deeppruning.latency.timing import time_in_turns
from deeppruning.searching.unlabelled import drift
from deeppruning.thinning.inputs import NamedInputs, count_of, rows_of

CHUNK = 16  # inputs at once
MOST_BYTES = 1 << 29  # of the outputs of one file that are kept
ROUNDS, FEWEST, SECONDS = 200, 15, 15.0
WARM_UP = 3


@dataclass(frozen=True)
class Drift:
    """How far a file's outputs are from another's, on inputs that nothing was chosen by."""

    answers: float | None  # share of inputs with another answer, where the output is a score for each class
    distance: float  # see `relative_distance`; averaged over outputs
    inputs: int

    def __str__(self) -> str:
        said = "" if self.answers is None else f"{100 * self.answers:.2f} % of the answers differ, "
        return f"{said}relative squared distance of the outputs {self.distance:.4f} ({self.inputs} inputs)"


@dataclass(frozen=True)
class SideBySide:
    """Milliseconds of two files measured in turns, and the ratio, with its 95 % confidence interval."""

    before: float
    after: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.before:.2f} ms before, {self.after:.2f} ms after: {100 * self.ratio:.1f} % "
            f"(95 % confidence: {100 * self.low:.1f} to {100 * self.high:.1f} %)"
        )


def measure_drift(before: Path, after: Path, inputs: NamedInputs) -> Drift:
    """Run both files on the inputs and compare their outputs."""
    old, new = (_outputs(path, inputs) for path in (before, after))
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a.is_floating_point()]
    judged = [
        drift(a if a.dim() != 2 else a[..., None], b if b.dim() != 2 else b[..., None]) for a, b in pairs
    ]
    distance = sum(drifted.error for drifted in judged) / max(1, len(judged))
    single = len(pairs) == 1 and pairs[0][0].dim() == 2 and pairs[0][0].shape[1] > 1
    answers = float((pairs[0][0].argmax(1) != pairs[0][1].argmax(1)).float().mean()) if single else None
    return Drift(answers, distance, len(old[0]) if old else 0)


def measure_latency(
    files: tuple[Path, Path], inputs: NamedInputs, *, batch: int = 1, threads: int = 1
) -> SideBySide:
    """Time both files in turns on the same inputs."""
    sessions = [open_session(path, threads=threads) for path in files]
    values = _batch_of(sessions[0], inputs, batch)
    forwards = [partial(session.run, None, values) for session in sessions]
    for forward in forwards * WARM_UP:
        forward()
    times = time_in_turns(forwards, ROUNDS, fewest=FEWEST, seconds=SECONDS)
    before, after = (1000 * summary(each)["median"] for each in times)
    ratio = float(np.median(np.divide(times[1], times[0])))
    low, high = speed_limits(*times) or (1 / ratio, 1 / ratio)
    return SideBySide(before, after, ratio, 1 / high, 1 / low)


def seconds_of(path: Path, inputs: NamedInputs, *, batch: int = 1, threads: int = 1) -> float:
    """The seconds that a file takes, the fastest of several runs."""
    session = open_session(path, threads=threads)
    values = _batch_of(session, inputs, batch)
    (times,) = time_in_turns([lambda: session.run(None, values)], 30, fewest=5, seconds=5.0)
    return min(times)


def _outputs(path: Path, inputs: NamedInputs) -> list[Tensor]:
    """The outputs of a file for these inputs, or for the first of them if they are large.

    Their first axis is taken to be the batch.
    """
    session = open_session(path, threads=max(1, torch.get_num_threads()))
    made, size = [], 0
    for part in _chunks(session, inputs):
        made.append(session.run(None, _as_taken(session, part)))
        size += sum(output.nbytes for output in made[-1])
        if size > MOST_BYTES:
            break
    return [torch.from_numpy(np.concatenate(each)) for each in zip(*made, strict=True)]


def _chunks(session: Any, inputs: NamedInputs) -> Iterator[NamedInputs]:
    """Parts of the inputs; where the file fixes the batch, of that size, without a remainder."""
    fixed, count = _fixed_batch(session), count_of(inputs)
    size = fixed or CHUNK
    end = count - count % fixed if fixed else count
    return (rows_of(inputs, slice(start, min(start + size, end))) for start in range(0, end, size))


def _batch_of(session: Any, inputs: NamedInputs, batch: int) -> dict[str, Any]:
    """A batch of the inputs, of the size that the file fixes, or of this one."""
    rows = (np.arange(_fixed_batch(session) or batch) % count_of(inputs)).tolist()
    return _as_taken(session, rows_of(inputs, rows))


def _fixed_batch(session: Any) -> int | None:
    """The batch size that the file has written in, if it has."""
    sizes = [value.shape[0] for value in session.get_inputs() if value.shape]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _as_taken(session: Any, inputs: NamedInputs) -> dict[str, Any]:
    """Inputs by the names and types that the session takes."""
    kinds = {value.name: value.type for value in session.get_inputs()}
    return {
        name: tensor.half().numpy() if kinds[name] == "tensor(float16)" else tensor.numpy()
        for name, tensor in inputs.items()
    }


def bench_files(
    before: Path, after: Path, batches: Iterable[int], *, threads: int = 1, as_json: bool = False
) -> str:
    """The latency of two files of the same inputs, on random ones, as a text or as JSON."""
    file = read_onnx(before, SUPPORTED)
    names, names_after = (
        [value.name for value in each.inputs] for each in (file, read_onnx(after, SUPPORTED))
    )
    if set(names) != set(names_after):
        raise InputError(
            f"{before} takes {', '.join(names)}, {after} {', '.join(names_after)}: "
            "they cannot be measured on the same inputs"
        )
    inputs = run_trials(file)[0].inputs
    latencies = {
        batch: measure_latency((before, after), inputs, batch=batch, threads=threads)
        for batch in dict.fromkeys(batches)
    }
    if as_json:
        return json.dumps({str(batch): vars(latency) for batch, latency in latencies.items()})
    sizes = [f"{path}: {path.stat().st_size:,} bytes" for path in (before, after)]
    return "\n".join([*sizes, *(f"batch {batch}: {latency}" for batch, latency in latencies.items())])
