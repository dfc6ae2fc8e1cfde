"""`from_onnx`: a file as a network, proven to compute the same in torch as in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.deploying.onnx_graph import require
from deeppruning.errors import InputError
from deeppruning.importing.file import FileValue, OnnxFile, read_onnx
from deeppruning.importing.network import KNOWN, OnnxNetwork, build
from deeppruning.importing.operations import as_tensor

FREE_SIZES = (
    224,
    320,
    256,
    128,
    64,
    48,
    32,
)  # to try for axes that a file leaves open, where no example is given
TOLERANCE = {np.dtype(np.float16): 3e-2}  # of the largest output; others:
USUAL_TOLERANCE = 1e-4
ROUNDING = 1e-6


def from_onnx(path: str | Path, example_inputs: Any = None) -> nn.Module:
    """An ONNX file as an ordinary network in evaluation mode, with layers of torch named after the nodes.

    It can be trained, copied, pickled, exported and pruned like any other:
    `dp.search(dp.from_onnx("model.onnx"), images)`. Sizes that the file has written down follow the tensors
    where they can, so that channels may go. Both are run on the same inputs, `example_inputs` or random ones;
    if their outputs differ it is an error. Quantised files, control flow and operations that are not known
    are refused, naming them.
    """
    file = read_onnx(path, KNOWN)
    session = _Session(file)
    trials = session.trials(example_inputs)
    try:
        return _checked(file, build(file, trials[0].inputs), trials)
    except InputError:
        # What a size stands for may have been misread: then it stays as it is written.
        return _checked(file, build(file, trials[0].inputs, follow_sizes=False), trials)


@dataclass(frozen=True, eq=False)
class Answered:
    """Inputs by name, and what onnxruntime answers to them."""

    inputs: dict[str, Tensor]
    outputs: list[Tensor]


class _Session:
    """A file in onnxruntime."""

    def __init__(self, file: OnnxFile) -> None:
        runtime = require("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = max(1, torch.get_num_threads())
        self.file = file
        try:
            self.session = runtime.InferenceSession(
                str(file.path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has errors of its own
            raise InputError(f"{file.path} cannot be opened by onnxruntime: {_first_line(error)}") from error

    def run(self, inputs: dict[str, Tensor]) -> Answered:
        """The answer to some inputs, or an error that says which were given."""
        try:
            outputs = self.session.run(None, {name: value.numpy() for name, value in inputs.items()})
        except Exception as error:
            shapes = {name: tuple(value.shape) for name, value in inputs.items()}
            raise InputError(
                f"{self.file.path} does not run in onnxruntime on inputs of {shapes}: {_first_line(error)}; "
                "give example_inputs that it takes"
            ) from error
        return Answered(inputs, [torch.from_numpy(np.array(one)) for one in outputs])

    def trials(self, given: Any) -> list[Answered]:
        """The given inputs, or random ones, of two sizes and batches where the file leaves these open."""
        if given is not None:
            return [self.run(_given(self.file, given))]
        free = [
            place
            for one in self.file.inputs
            for place, size in enumerate(one.shape or ())
            if not isinstance(size, int)
        ]
        # With open sizes the second trial has another size and batch; with an open batch, another batch.
        sizes = FREE_SIZES if any(free) else FREE_SIZES[:2]
        shapes = [(2 + place % 2, size) for place, size in enumerate(sizes)] if free else [(1, 1)]
        found: list[Answered] = []
        failures: list[InputError] = []
        for batch, size in shapes:
            try:
                found.append(self.run(_random_inputs(self.file, batch, size)))
            except InputError as error:
                failures.append(error)
            if len(found) == 2:
                break
        if not found:
            raise failures[0]
        return found


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


def _given(file: OnnxFile, given: Any) -> dict[str, Tensor]:
    names = [one.name for one in file.inputs]
    listed = given if isinstance(given, (tuple, list)) else [given]
    values = dict(given) if isinstance(given, Mapping) else dict(zip(names, listed, strict=False))
    if values.keys() != set(names) or len(listed) > len(names):
        raise InputError(
            f"{file.path} takes the inputs {', '.join(names)}; got {len(values)}: {sorted(values)}"
        )
    return {name: torch.as_tensor(value) for name, value in values.items()}


def _random_inputs(file: OnnxFile, batch: int, free_size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {one.name: _random(one, batch, free_size, generator) for one in file.inputs}


def _random(value: FileValue, batch: int, free_size: int, generator: torch.Generator) -> Tensor:
    """Numbers of 0 to 1 in the input's shape, with this batch and size where these are free."""
    if value.shape is None:
        raise InputError(
            f"the file does not say which shape its input {value.name!r} has; give example_inputs"
        )
    sizes = [
        size if isinstance(size, int) else batch if place == 0 else free_size
        for place, size in enumerate(value.shape)
    ]
    kind = torch.from_numpy(np.zeros(1, value.dtype)).dtype
    if not kind.is_floating_point:
        return torch.randint(0, 2, sizes, generator=generator).to(kind)
    return torch.rand(sizes, generator=generator).to(kind)


def _checked(file: OnnxFile, network: OnnxNetwork, trials: Sequence[Answered]) -> OnnxNetwork:
    """The network, if it answers every trial as onnxruntime does."""
    for trial in trials:
        check_same(file, network, trial)
    return network


def check_same(file: OnnxFile, network: OnnxNetwork, trial: Answered) -> float:
    """The largest difference from onnxruntime, as a share of the largest output; an error if too large."""
    try:
        with torch.no_grad():
            outputs = network(*(trial.inputs[name] for name in network.input_names))
    except Exception as error:
        raise InputError(
            f"{file.path} as rebuilt does not run on other inputs: {_first_line(error)}"
        ) from error
    worst = 0.0
    listed = outputs if isinstance(outputs, tuple) else (outputs,)
    for info, ours, theirs in zip(file.outputs, map(as_tensor, listed), trial.outputs, strict=True):
        if ours.shape != theirs.shape:
            raise InputError(
                f"{file.path}: its output {info.name!r} has shape {tuple(theirs.shape)} in onnxruntime and "
                f"{tuple(ours.shape)} as rebuilt; the file is not supported"
            )
        if theirs.numel():
            scale = max(float(theirs.double().abs().max()), 1e-6)
            # Rounding is absolute where a sigmoid or softmax ends in tiny values.
            difference = max(0.0, float((ours.double() - theirs.double()).abs().max()) - ROUNDING) / scale
            allowed = TOLERANCE.get(info.dtype, USUAL_TOLERANCE)
            if not difference <= allowed:
                raise InputError(
                    f"{file.path}: its output {info.name!r} differs from onnxruntime's by "
                    f"{difference:.1e} of the largest value, more than {allowed:.0e}; it is not supported"
                )
            worst = max(worst, difference)
    return worst
