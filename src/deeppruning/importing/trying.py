"""What onnxruntime answers: a file is tried on inputs before it is rebuilt, in a process that may fail."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeppruning.deploying.onnx_graph import require
from deeppruning.errors import InputError
from deeppruning.importing import onnxruntime_process
from deeppruning.importing.file import FileValue, OnnxFile
from deeppruning.runs.leftovers import scratch_folder

FREE_SIZES = (224, 320, 256, 128, 64, 48, 32)  # for axes that a file leaves open, where no example is given
MOST_ELEMENTS = 1 << 24  # of one random input: pictures of 2,000 pixels a side
# Bytes that onnxruntime may use, beside what the file itself takes: for random inputs, for those of the user.
MEMORY, MEMORY_GIVEN = 3 << 30, 16 << 30
COPIES = 4  # of a file that are in memory while it is opened
MOST_SECONDS = 600


@dataclass(frozen=True, eq=False)
class Answered:
    """Inputs by name, and what onnxruntime answers to them."""

    inputs: dict[str, Tensor]
    outputs: list[Tensor]


def run_trials(file: OnnxFile, given: Any = None) -> list[Answered]:
    """Answers to the given inputs, or to random ones, of two sizes and batches where these are open.

    A damaged file can make onnxruntime crash, take all memory or never end: it runs in its own process.
    """
    require("onnxruntime")
    inputs = [_given(file, given)] if given is not None else _random_trials(file)
    with scratch_folder() as folder:
        for place, trial in enumerate(inputs):
            np.savez(folder / f"{place}.npz", *(trial[value.name].numpy() for value in file.inputs))
        _run(file, folder, MEMORY if given is None else MEMORY_GIVEN)
        if (folder / "session.txt").exists():
            reason = (folder / "session.txt").read_text()
            raise InputError(f"{file.path} cannot be opened by onnxruntime: {reason}")
        answered = [
            Answered(trial, _read(folder / f"{place}.out.npz"))
            for place, trial in enumerate(inputs)
            if (folder / f"{place}.out.npz").exists()
        ]
        if answered:
            return answered
        reason = (folder / "0.txt").read_text() if (folder / "0.txt").exists() else "it stopped"
    shapes = {name: tuple(value.shape) for name, value in inputs[0].items()}
    raise InputError(
        f"{file.path} does not run in onnxruntime on inputs of {shapes}: {reason}; "
        "give example_inputs that it takes"
    )


def _run(file: OnnxFile, folder: Path, memory: int) -> None:
    """Run onnxruntime in its own process on the inputs in a folder."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    weights = sum(array.nbytes for array in file.constants.values()) + file.path.stat().st_size
    most = min(memory + COPIES * weights, whole)
    threads = max(1, torch.get_num_threads())
    script = [sys.executable, str(Path(onnxruntime_process.__file__)), str(file.path.absolute()), str(folder)]
    try:
        done = subprocess.run(
            [*script, str(threads), str(most)],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"{file.path} did not run to its end in onnxruntime within {MOST_SECONDS} s; is it damaged?"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = f": {said[-1][:200]}" if said else ""
        raise InputError(f"{file.path} makes onnxruntime crash ({done.returncode}{why}); is it damaged?")


def _read(path: Path) -> list[Tensor]:
    """The tensors that the process has written."""
    with np.load(path) as answers:
        return [torch.from_numpy(np.array(answers[name])) for name in answers.files]


def _random_trials(file: OnnxFile) -> list[dict[str, Tensor]]:
    """Random inputs to try the file on, with several batches and sizes where these are free."""
    free = [
        place
        for value in file.inputs
        for place, size in enumerate(value.shape or ())
        if not isinstance(size, int)
    ]
    # With open sizes the second trial has another size and batch; with an open batch, another batch.
    sizes = FREE_SIZES if any(free) else FREE_SIZES[:2]
    shapes = [(2 + place % 2, size) for place, size in enumerate(sizes)] if free else [(1, 1)]
    return [_random_inputs(file, batch, size) for batch, size in shapes]


def _given(file: OnnxFile, given: Any) -> dict[str, Tensor]:
    """The user's example as inputs by name."""
    names = [value.name for value in file.inputs]
    listed = given if isinstance(given, (tuple, list)) else [given]
    values = dict(given) if isinstance(given, Mapping) else dict(zip(names, listed, strict=False))
    if values.keys() != set(names) or len(listed) > len(names):
        raise InputError(
            f"{file.path} takes the inputs {', '.join(names)}; got {len(values)}: {sorted(values)}"
        )
    return {value.name: _typed(value, torch.as_tensor(values[value.name])) for value in file.inputs}


def _typed(value: FileValue, tensor: Tensor) -> Tensor:
    """In the precision that the file takes."""
    floating = tensor.is_floating_point() and value.dtype.kind == "f"
    return tensor.cpu().to(_kind(value)) if floating else tensor.cpu()


def _kind(value: FileValue) -> torch.dtype:
    """The torch type of an ONNX value."""
    return torch.from_numpy(np.zeros(1, value.dtype)).dtype


def _random_inputs(file: OnnxFile, batch: int, free_size: int) -> dict[str, Tensor]:
    """Random inputs of the file by name."""
    generator = torch.Generator().manual_seed(0)
    return {value.name: _random(file, value, batch, free_size, generator) for value in file.inputs}


def _random(
    file: OnnxFile, value: FileValue, batch: int, free_size: int, generator: torch.Generator
) -> Tensor:
    """Numbers of 0 to 1 in the input's shape, with this batch and size where these are free."""
    if value.shape is None:
        raise InputError(
            f"{file.path} does not say which shape its input {value.name!r} has; give example_inputs"
        )
    sizes = [
        size if isinstance(size, int) else batch if place == 0 else free_size
        for place, size in enumerate(value.shape)
    ]
    if math.prod(sizes) > MOST_ELEMENTS:
        raise InputError(
            f"{file.path}: its input {value.name!r} has {math.prod(sizes):,} numbers; is it whole?"
        )
    kind = _kind(value)
    if not kind.is_floating_point:
        return torch.randint(0, 2, sizes, generator=generator).to(kind)
    return torch.rand(sizes, generator=generator).to(kind)
