"""Checkpoints: the state of a training job after an epoch, with the reports of its epochs.

A checkpoint is one safetensors file, replaced atomically. Tensors: `model.<name>` for the network,
`optimizer.<value>.<parameter>` for the optimizer's state, such as momentum. Metadata: format, job (every
option that decides the result) and history (one report per epoch), as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.amounts import listed
from deeppruning.errors import DAMAGE, RunError
from deeppruning.options import differences
from deeppruning.training.finite import learnt, not_finite
from deeppruning.training.muon import Muon
from deeppruning.training.tensors import read_tensors, write_tensors

FORMAT = "2"
_MODEL = "model."
_OPTIMIZER = "optimizer."


@dataclass(frozen=True)
class EpochReport:
    """One epoch: loss and error over the (augmented) training batches, and the test error after it.

    Epoch 0 is the network before training: it has neither loss nor training error.
    """

    epoch: int  # counted from 1
    train_loss: float | None
    train_error: float | None
    test_error: float | None
    lr: float  # of the last step
    images_per_second: float  # of training alone, without the test
    seconds: float  # training and test


@dataclass(frozen=True)
class BatchReport:
    """The state of an epoch after one of its batches; loss and error are means over the epoch so far."""

    epoch: int
    batch: int  # counted from 1
    batches: int
    train_loss: float
    train_error: float
    lr: float
    images_per_second: float


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Muon,
    job: Mapping[str, Any],
    history: Sequence[EpochReport],
) -> None:
    """Write the state after the last epoch of `history` in place of the previous checkpoint."""
    metadata = {
        "format": FORMAT,
        "job": json.dumps(dict(job), sort_keys=True),
        "history": json.dumps([asdict(report) for report in history]),
    }
    write_tensors(path, _checkpoint_tensors(model, optimizer), metadata)


def _checkpoint_tensors(model: nn.Module, optimizer: torch.optim.Optimizer | Muon) -> dict[str, Tensor]:
    """The tensors of a checkpoint."""
    state = model.state_dict().items()  # with whatever modules add to it
    tensors = {_MODEL + name: tensor for name, tensor in state if isinstance(tensor, Tensor)}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{_OPTIMIZER}{key}.{name}"] = value
    return tensors


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | Muon, job: Mapping[str, Any]
) -> list[EpochReport]:
    """Restore model and optimizer in place and return the history; neither changes if there is an error."""
    tensors, written_job, history = _read_checkpoint(path)
    _check_same_job(path, written_job, job)
    targets = _checkpoint_tensors(model, optimizer)
    _check_same_tensors(path, tensors, targets)
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
    """The epochs before a checkpoint; none if there is no checkpoint yet."""
    return _read_checkpoint(path)[2] if path.exists() else []


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[EpochReport]]:
    """Tensors, job and epoch reports of a checkpoint."""
    advice = "delete it to start again, or choose another folder"
    tensors, metadata = read_tensors(path, error=RunError, advice=advice)
    version = metadata.get("format")
    if version == FORMAT:
        try:
            history = [
                _epoch_report(number, report) for number, report in enumerate(json.loads(metadata["history"]))
            ]
            return tensors, dict(json.loads(metadata["job"])), history
        except DAMAGE as error:
            raise RunError(f"the checkpoint {path} is damaged ({error}); {advice}") from error
    kind = f"of format {version}, this version reads {FORMAT}" if version else "not a training checkpoint"
    raise RunError(f"{path} is {kind}; {advice}")


def _epoch_report(number: int, table: dict[str, Any]) -> EpochReport:
    report = EpochReport(**table)
    numbers = [value for name, value in table.items() if name != "test_error" or value is not None]
    if report.epoch != number + 1 or not all(type(value) in (int, float) for value in numbers):
        raise ValueError(f"epoch {number + 1} is recorded as {str(table)[:200]}")
    return report


def _check_same_job(path: Path, written: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if changed := differences(written, wanted):
        raise RunError(
            f"the checkpoint {path} belongs to a job with other options: {changed}; "
            "use the same options to continue it, or choose another folder"
        )


def _check_same_tensors(path: Path, written: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(written.keys() | wanted.keys()):
        if name in written and name in wanted and written[name].shape == wanted[name].shape:
            continue
        there = tuple(written[name].shape) if name in written else "absent"
        here = tuple(wanted[name].shape) if name in wanted else "absent"
        raise RunError(
            f"the checkpoint {path} belongs to another network: {name} is {there} there and {here} here; "
            "use the same model to continue it, or choose another folder"
        )
