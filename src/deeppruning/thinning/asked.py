"""What a caller of `thin` asks for, checked before any work: limits of cost, and a place for the file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeppruning.errors import InputError
from deeppruning.limits import Limits

LATENCY = "latency"
SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def split_target(target: Any) -> tuple[Limits, float | None]:
    """The limits, and apart from them a latency that is asked for as a share of the file's own.

    >>> limits, share = split_target("latency=60%,params=500k")
    >>> str(limits), share
    ('params=500000', 0.6)
    """
    given = _as_mapping(target)
    match = SHARE.fullmatch(str(given.get(LATENCY, "")))
    share = None if match is None else float(match[1]) / 100
    if share is not None and not 0 < share <= 1:
        raise InputError(f"target 'latency={given[LATENCY]}': a fraction lies above 0 % and at most at 100 %")
    limits = Limits.of(target if share is None else {k: v for k, v in given.items() if k != LATENCY})
    if limits.bounds_error:
        raise InputError(
            f"there are no labels to check {limits} by; limit a cost: flops, params, size or latency"
        )
    if not limits and share is None:
        raise InputError("say how much is left: for example target flops=70%")
    return limits, share


def _as_mapping(target: Any) -> dict[str, Any]:
    """The target of `thin` as limits by name."""
    if isinstance(target, str):
        parts = [part.partition("=") for part in target.split(",")]
        return {name.strip(): value.strip() for name, equals, value in parts if equals}
    return dict(target) if isinstance(target, Mapping) else {}


def check_out(path: Path, out: Path) -> None:
    """Refuse a place where the thin file cannot be written."""
    if out.suffix.lower() != ".onnx":
        raise InputError(f"{out} must be called something.onnx: that is what is written")
    if out.is_dir():
        raise InputError(f"{out} is a folder; name the file to write in it")
    if path.exists() and out.exists() and path.samefile(out):
        raise InputError(f"{out} is the file that is read; choose another name for the thin one")
    parent = out.absolute().parent
    there = next(folder for folder in (parent, *parent.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"{there} cannot be written to ({error.strerror}), so {out} could not be made; "
            "choose another place"
        ) from error
