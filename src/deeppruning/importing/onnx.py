"""`from_onnx`: a file as a network, proven to compute the same in torch as in onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from deeppruning.errors import InputError, reason_of
from deeppruning.importing.building import SUPPORTED, build
from deeppruning.importing.file import OnnxFile, read_onnx
from deeppruning.importing.network import OnnxNetwork, rounding_of
from deeppruning.importing.trying import Answered, run_trials
from deeppruning.importing.values import as_tensor

TOLERANCE = {np.dtype(np.float16): 3e-2}  # of the largest output; others:
USUAL_TOLERANCE = 1e-4
ROUNDING = 1e-6
MOST_ROUNDING = 1e-2  # where the network itself is that sensitive to rounding


def from_onnx(path: str | Path, example_inputs: Any = None) -> nn.Module:
    """An ONNX file as an ordinary network in evaluation mode, with layers of torch named after the nodes.

    It can be trained, copied, pickled, exported and pruned like any other:
    `dp.search(dp.from_onnx("model.onnx"), images)`. Sizes that the file has written down follow the tensors
    where they can, so that channels may go. Both are run on the same inputs, `example_inputs` or random ones;
    if their outputs differ it is an error. Quantised files, control flow and operations that are not known
    are refused, naming them.
    """
    return from_file(read_onnx(path, SUPPORTED), example_inputs)


def from_file(file: OnnxFile, example_inputs: Any = None) -> OnnxNetwork:
    """The same for a file that was read before."""
    trials = run_trials(file, example_inputs)
    try:
        return _checked(file, build(file, trials[0].inputs), trials)
    except InputError:
        # What a size stands for may have been misread: then it stays as it is written.
        return _checked(file, build(file, trials[0].inputs, follow_sizes=False), trials)


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
            f"{file.path} as rebuilt does not run on other inputs: {reason_of(error)}"
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
            distance = float((ours.double() - theirs.double()).abs().max())
            # Rounding is absolute where a sigmoid or softmax ends in tiny values.
            difference = (distance - ROUNDING) / scale
            allowed = TOLERANCE.get(info.dtype, USUAL_TOLERANCE)
            if not difference <= allowed:
                allowed = max(allowed, min(MOST_ROUNDING, rounding_of(network, trial.inputs) / scale))
            if not difference <= allowed:
                raise InputError(
                    f"{file.path}: its output {info.name!r} differs from onnxruntime's by "
                    f"{difference:.1e} of the largest value, more than {allowed:.0e}; it is not supported"
                )
            worst = max(worst, distance / scale)
    return worst
