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
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from deeppruning.atomic import write_atomically
from deeppruning.errors import RunError
from deeppruning.training.finite import learnt, listed, not_finite
from deeppruning.training.reports import EpochReport

FORMAT = "1"
_MODEL = "model."
_OPTIMIZER = "optimizer."


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A safetensors file, put in place whole or not at all; a failing disk raises RunError."""
    # Serialised in memory first: safetensors reports a full disk as its own error, without the cause.
    # Each tensor is copied, for the format refuses tensors that share memory or are not contiguous.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, with_sorted_metadata(save(plain, dict(metadata))))


def with_sorted_metadata(content: bytes) -> bytes:
    """The same safetensors file with its metadata in alphabetical order.

    The library writes them in an order that changes from process to process; equal contents must give
    equal bytes. The header is padded to 8 bytes, as the format asks for.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + content[end:]


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
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        version = metadata.get("format")
        if version == FORMAT:
            history = [EpochReport(**report) for report in json.loads(metadata["history"])]
            return tensors, dict(json.loads(metadata["job"])), history
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"the checkpoint {path} is damaged ({error}); {advice}") from error
    kind = f"of format {version}, this version reads {FORMAT}" if version else "not a training checkpoint"
    raise RunError(f"{path} is {kind}; {advice}")


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
