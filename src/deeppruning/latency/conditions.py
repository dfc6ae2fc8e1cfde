"""Under which conditions a latency is measured; without them a number of milliseconds says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deeppruning.config import SearchConfig


@dataclass(frozen=True)
class Conditions:
    """What runs the network, on what, and on how many inputs at once."""

    runtime: str = "torch"
    batch: int = 1
    threads: int = 1
    device: str = "cpu"  # onnxruntime is run on the processor whatever this is

    @classmethod
    def of(cls, search: SearchConfig, device: str) -> Conditions:
        """Those that the options of a search ask for, on a device."""
        return cls(search.latency_runtime, search.latency_batch, search.latency_threads, device)

    def to_table(self) -> dict[str, Any]:
        """Plain values that `from_table` reads back."""
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Conditions:
        """Read back what `to_table` wrote."""
        return cls(str(table["runtime"]), int(table["batch"]), int(table["threads"]), str(table["device"]))

    def __str__(self) -> str:
        inputs = "one input" if self.batch == 1 else f"{self.batch} inputs"
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.runtime}, {inputs}, {threads if self.device == 'cpu' else self.device}"
