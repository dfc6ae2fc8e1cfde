"""Times of layers on this machine, kept in the user's cache folder: each is measured once."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppruning.errors import DAMAGE, RunError
from deeppruning.latency.layers import LayerShape
from deeppruning.latency.runtimes import Runtime
from deeppruning.system.files import cache_folder, write_atomically
from deeppruning.system.versions import processor

_RESTRICTING = ("ONEDNN_MAX_CPU_ISA",)  # by which PyTorch's convolutions do without some instructions
LARGEST_FILE = 1 << 26  # bytes; more is no table of ours


@dataclass
class LayerTimes:
    """Seconds by shape and extents; a file that is missing or damaged is one in which nothing is known."""

    path: Path
    about: dict[str, Any]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime) -> LayerTimes:
        """What is known of a runtime, in its version, on this processor."""
        about = {"runtime": runtime.version, "processor": processor(), **runtime.conditions.to_table()}
        about |= {name: os.environ[name] for name in _RESTRICTING if name in os.environ}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        found = cls(cache_folder() / "latency" / f"{digest}.json", about)
        found.seconds = found._read()
        return found

    def get(self, shape: LayerShape, extents: tuple[int, int], measure: Callable[[], float]) -> float:
        """The time of a layer, measured if it is not known."""
        if not self.knows(shape, extents):
            self.put(shape, extents, measure())
        return self.at(shape, extents)

    def at(self, shape: LayerShape, extents: tuple[int, int]) -> float:
        """The time of a layer that is known."""
        return self.seconds[_key(shape)][_key(extents)]

    def knows(self, shape: LayerShape, extents: tuple[int, int]) -> bool:
        """Whether there is a time of this layer."""
        return _key(extents) in self.seconds.get(_key(shape), {})

    def put(self, shape: LayerShape, extents: tuple[int, int], seconds: float) -> None:
        """Take note of the time of a layer."""
        self.seconds.setdefault(_key(shape), {})[_key(extents)] = float(f"{seconds:.4g}")

    def save(self) -> None:
        """Write down all times beside those that others found meanwhile; where that fails, none are kept."""
        merged = self._read()
        for shape, times in self.seconds.items():
            merged[shape] = {**merged.get(shape, {}), **times}
        with suppress(OSError, RunError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps({"about": self.about, "seconds": merged}).encode())

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            if self.path.stat().st_size > LARGEST_FILE:
                return {}
            table = json.loads(self.path.read_bytes())["seconds"]
            return {
                str(shape): {str(key): _positive(value) for key, value in times.items()}
                for shape, times in table.items()
            }
        except (OSError, *DAMAGE):
            return {}


def _key(what: LayerShape | tuple[int, int]) -> str:
    return json.dumps(what.to_table()) if isinstance(what, LayerShape) else "x".join(map(str, what))


def _positive(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"{value} is no time")
    return seconds
