"""Devices, CPU cores and torch threads: which there are, and which to use.

>>> choose_device("cpu")
device(type='cpu')
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from deeppruning.errors import InputError

MOST_AT_ONCE = 128  # inputs
BYTES_AT_ONCE = 2**22  # of inputs on a CPU; their activations are several times as large
FEWEST_AT_ONCE = 16  # torch runs 1x1 convolutions by a slower way for fewer, with one thread
ROOM_FOR_FEWEST = 2**27  # bytes of inputs: of larger ones, fewer run at once
BYTES_AT_ONCE_ON_GPU = 2**25  # 55 photographs of 224 pixels: enough to keep a GPU busy


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is a GPU if there is one, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    reason = _why_absent(device)
    if reason:
        raise InputError(f"device {name!r} cannot be used: {reason}; use --device cpu or auto")
    return device


def device_or_cpu(name: str) -> torch.device:
    """The device of this name if this machine has it, else the CPU."""
    device = torch.device(name)
    return torch.device("cpu") if _why_absent(device) else device


def precision_of(model: nn.Module) -> torch.dtype:
    """The dtype a network expects its input in: that of its first floating point parameter.

    >>> precision_of(nn.Conv2d(3, 4, 3).bfloat16())
    torch.bfloat16
    """
    kinds = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return next(kinds, torch.float32)


def inputs_at_once(bytes_each: int, device: str | torch.device = "cpu") -> int:
    """How many inputs of so many bytes run at once, where nothing depends on how many do.

    On a CPU so few that activations stay in its caches, more or less, but not fewer than run fast.

    >>> [inputs_at_once(4 * 3 * side * side) for side in (32, 224, 2000)]
    [128, 16, 2]
    """
    bytes_each = max(bytes_each, 1)
    if torch.device(device).type != "cpu":
        return min(max(BYTES_AT_ONCE_ON_GPU // bytes_each, 1), MOST_AT_ONCE)
    fewest = min(max(ROOM_FOR_FEWEST // bytes_each, 1), FEWEST_AT_ONCE)
    return min(max(BYTES_AT_ONCE // bytes_each, fewest), MOST_AT_ONCE)


def _why_absent(device: torch.device) -> str:
    """Why this machine cannot compute on the device; empty if it can."""
    if device.type == "cuda":
        if not torch.cuda.is_available():
            built = torch.version.cuda or torch.version.hip
            return "no GPU was found" if built else "this build of torch has no CUDA support"
        count = torch.cuda.device_count()
        if device.index is not None and device.index >= count:
            return f"there {'is one GPU' if count == 1 else f'are {count} GPUs'}, numbered from 0"
        return ""
    if device.type == "mps":
        present = torch.backends.mps.is_available()
        return "" if present else "this machine or build of torch has no MPS support"
    try:
        torch.empty(1, device=device).item()
    except (RuntimeError, NotImplementedError, AssertionError):
        return f"this build of torch cannot use devices of type {device.type!r}"
    return ""


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Use this many torch threads inside the block: results depend on the number in their last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def default_workers(threads: int) -> int:
    """How many processes with this many threads each the CPU cores can run, at least one."""
    return max(1, available_threads() // threads)


def most_workers() -> int:
    """The largest number of processes that may be requested: each takes some hundred megabytes."""
    return max(64, 8 * available_threads())


def workers_here(recorded: int | None) -> int | None:
    """The number of processes recorded by a run, limited to the CPU cores of this machine."""
    return None if recorded is None else min(recorded, available_threads())


def available_threads() -> int:
    """The CPU cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
