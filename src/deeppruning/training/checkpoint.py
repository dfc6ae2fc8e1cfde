"""The state of a training job after an epoch, in one safetensors file that is never half written.

Tensors: `model.<name>` for the network, `optimizer.<parameter>` for SGD's momentum. Metadata: format,
job (every option that decides the result) and history (one report an epoch), as JSON. No pickle.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import DAMAGE, RunError
from deeppruning.training.finite import learnt, listed, not_finite
from deeppruning.training.reports import EpochReport
from deeppruning.training.tensors import read_tensors, write_tensors

FORMAT = "1"
_MODEL = "model."
_OPTIMIZER = "optimizer."


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    job: Mapping[str, Any],
    history: Sequence[EpochReport],
) -> None:
    """Write the state after the last epoch of `history`; the previous checkpoint stays until then."""
    tensors = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        if parameter in optimizer.state:
            tensors[_OPTIMIZER + name] = optimizer.state[parameter]["momentum_buffer"]
    metadata = {
        "format": FORMAT,
        "job": json.dumps(dict(job), sort_keys=True),
        "history": json.dumps([asdict(report) for report in history]),
    }
    write_tensors(path, tensors, metadata)


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, job: Mapping[str, Any]
) -> list[EpochReport]:
    """Restore model and optimizer in place and return the history; nothing is touched on an error."""
    tensors, written_job, history = _read(path)
    _check_job(path, written_job, job)
    parameters = dict(model.named_parameters())
    targets = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
    for name, parameter in parameters.items():
        if parameter in optimizer.state:
            targets[_OPTIMIZER + name] = optimizer.state[parameter]["momentum_buffer"]
    _check_tensors(path, tensors, targets)
    broken = not_finite({name: tensors[_MODEL + name] for name in learnt(model)})
    if broken:
        raise RunError(
            f"the checkpoint {path} holds weights that are not finite ({listed(broken)}): its training "
            "diverged or it is damaged; delete it to start again"
        )
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(tensors[name])
    return history


def read_history(path: Path) -> list[EpochReport]:
    """The epochs a checkpoint has behind it; none if there is no checkpoint yet."""
    return _read(path)[2] if path.exists() else []


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[EpochReport]]:
    advice = "delete it to start again, or choose another folder"
    tensors, metadata = read_tensors(path, error=RunError, advice=advice)
    version = metadata.get("format")
    if version == FORMAT:
        try:
            history = [
                _report(number, report) for number, report in enumerate(json.loads(metadata["history"]))
            ]
            return tensors, dict(json.loads(metadata["job"])), history
        except DAMAGE as error:
            raise RunError(f"the checkpoint {path} is damaged ({error}); {advice}") from error
    kind = f"of format {version}, this version reads {FORMAT}" if version else "not a training checkpoint"
    raise RunError(f"{path} is {kind}; {advice}")


def _report(number: int, table: dict[str, Any]) -> EpochReport:
    report = EpochReport(**table)
    numbers = [value for name, value in table.items() if name != "test_error" or value is not None]
    if report.epoch != number + 1 or not all(type(value) in (int, float) for value in numbers):
        raise ValueError(f"epoch {number + 1} is recorded as {str(table)[:200]}")
    return report


def _check_job(path: Path, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differing = [name for name in {**written, **wanted} if written.get(name) != wanted.get(name)]
    if differing:
        listed = ", ".join(f"{name} {written.get(name)!r} (now {wanted.get(name)!r})" for name in differing)
        raise RunError(
            f"the checkpoint {path} belongs to a job with {listed}; "
            "use the same options to go on with it, or choose another folder"
        )


def _check_tensors(path: Path, written: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(written.keys() | wanted.keys()):
        if name in written and name in wanted and written[name].shape == wanted[name].shape:
            continue
        there = tuple(written[name].shape) if name in written else "absent"
        here = tuple(wanted[name].shape) if name in wanted else "absent"
        raise RunError(
            f"the checkpoint {path} belongs to another network: {name} is {there} there and {here} here; "
            "use the same model to go on with it, or choose another folder"
        )
