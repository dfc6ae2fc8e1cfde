"""Measured networks as tables: size, latency, int8 and warnings."""

from collections.abc import Mapping
from typing import Any

from deeppruning.amounts import aligned, amount, percent
from deeppruning.roles import ORIGINAL


class BenchFigures(dict[str, Any]):
    """What was measured, as JSON values; prints as two tables with their warnings."""

    def __repr__(self) -> str:
        lines = [
            tables(self["networks"]),
            *((f"\n{int8_table(self['int8'])}\n",) if self.get("int8") else ()),
            _bench_footnote(self),
            *(f"warning: {line}" for line in self["warnings"]),
        ]
        if self["advice"]:
            lines.append(self["advice"])
        if self["noisy"]:
            lines.append("note: the spread is large, the machine was busy; measure again when it is idle")
        return "\n".join(lines)

    __str__ = __repr__


def tables(networks: Mapping[str, Mapping[str, Any]]) -> str:
    """Two tables with a row for each network: sizes, and latencies."""
    original = networks[ORIGINAL]
    kinds = list(dict.fromkeys(kind for network in networks.values() for kind in network["latency_ms"]))
    sizes = [["network", "parameters", "FLOPs", "file", "peak memory"]]
    times = [["latency, ms", *kinds]]
    for name, network in networks.items():
        counts = [
            amount(network[key], like=original[key]) for key in ("flops", "file_bytes", "peak_memory_bytes")
        ]
        sizes.append([name, f"{network['params']:,}", counts[0], f"{counts[1]}B", f"{counts[2]}B"])
        times.append([name, *(_timing_cell(network["latency_ms"].get(kind)) for kind in kinds)])
    return f"{aligned(sizes)}\n\n{aligned(times)}"


def int8_table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of networks in int8 next to the same networks in float."""
    rows = [["int8", "float file", "int8 file", "float test error", "int8 test error", "test images"]]
    for name, row in figures.items():
        like = row["float_file_bytes"]
        sizes = [f"{amount(row[key], like=like)}B" for key in ("float_file_bytes", "file_bytes")]
        errors = [percent(row.get(key)) or "–" for key in ("float_test_error", "test_error")]
        rows.append([name, *sizes, *errors, str(row.get("test_images") or "–")])
    return aligned(rows)


def float_kind(how: str) -> str:
    """The float measurement that one in int8 is compared with; any other is its own.

    >>> float_kind("onnxruntime int8, batch 1")
    'onnxruntime, batch 1'
    """
    return how.replace(" int8", "")


def _timing_cell(timing: Mapping[str, float] | None) -> str:
    return "–" if timing is None else f"{timing['median']:.3g} ± {timing['spread']:.1g}"


def _bench_footnote(figures: Mapping[str, Any]) -> str:
    where = f"{figures['threads']} thread(s)" if figures["device"] == "cpu" else figures["device"]
    missing = "; onnxruntime not measured: it needs the packages onnx and onnxruntime, the CPU and a network "
    missing += "that can be exported"
    return (
        f"(latency: median and half the interquartile range, {where}, networks in turns and in deployment "
        "form, batch norms folded, unless as dp.load returns them; peak memory: weights and activations "
        f"alive at once for one input, counted{'' if figures['onnxruntime'] else missing})"
    )
