"""Measured networks as tables for people: what each takes, how long it takes, and what to make of it."""

from collections.abc import Mapping
from typing import Any

from deeppruning.amounts import aligned, amount
from deeppruning.roles import ORIGINAL


class BenchFigures(dict[str, Any]):
    """What was measured, as JSON values; prints as two tables with their warnings."""

    def __repr__(self) -> str:
        lines = [
            tables(self["networks"]),
            _footnote(self),
            *(f"warning: {line}" for line in self["warnings"]),
        ]
        if self["advice"]:
            lines.append(self["advice"])
        if self["noisy"]:
            lines.append("note: the spread is large, the machine was busy; measure again when it is idle")
        return "\n".join(lines)

    __str__ = __repr__


def tables(networks: Mapping[str, Mapping[str, Any]]) -> str:
    """Two tables with a row for each network: what it takes, and how long it takes."""
    original = networks[ORIGINAL]
    kinds = list(original["latency_ms"])
    sizes = [["network", "parameters", "FLOPs", "file", "peak memory"]]
    times = [["latency, ms", *kinds]]
    for name, one in networks.items():
        counts = [
            amount(one[key], like=original[key]) for key in ("flops", "file_bytes", "peak_memory_bytes")
        ]
        sizes.append([name, f"{one['params']:,}", counts[0], f"{counts[1]}B", f"{counts[2]}B"])
        timings = [one["latency_ms"][kind] for kind in kinds]
        times.append([name, *(f"{timing['median']:.3g} ± {timing['spread']:.1g}" for timing in timings)])
    return f"{aligned(sizes)}\n\n{aligned(times)}"


def _footnote(figures: Mapping[str, Any]) -> str:
    where = f"{figures['threads']} thread(s)" if figures["device"] == "cpu" else figures["device"]
    missing = (
        ""
        if figures["onnxruntime"]
        else "; onnxruntime not measured: needs the packages onnx and onnxruntime, the processor and a "
        "network that can be exported"
    )
    return (
        f"(latency: median and half the quartile distance, {where}, networks in turns and in "
        f"deployment form, batch norms folded; peak memory: weights "
        f"and activations alive at once for one input, counted{missing})"
    )
