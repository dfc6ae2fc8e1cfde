"""onnxruntime sessions of a run's networks to be measured: in floats, and in int8 where wanted or there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppruning.deploying.onnx_graph import open_session
from deeppruning.errors import GraphError
from deeppruning.exporting.calibration import Material
from deeppruning.exporting.int8 import SUFFIX, measure, quantize
from deeppruning.exporting.networks import RunNetwork
from deeppruning.exporting.onnx_file import export_onnx
from deeppruning.runs.facts import Int8Figures
from deeppruning.runs.leftovers import scratch_folder

FLOAT, INT8 = "onnxruntime", "onnxruntime int8"


@dataclass
class Sessions:
    """By the name of a network: what is run, and what was measured of it beside its time."""

    plain: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Int8Figures] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def open_sessions(
    networks: Mapping[str, RunNetwork],
    threads: int,
    exported: Mapping[str, Path],
    material: Material | None,
) -> Sessions:
    """A session for every network; none at all if one of them cannot be exported.

    With material all are quantised; without, int8 files that were `exported` are measured.
    """
    found = Sessions()
    with scratch_folder() as folder:
        files: dict[str, Path] = {}
        for name, network in networks.items():
            files[name] = folder / f"{name}.onnx"
            # Only timed here, so rounding of large outputs is no reason to refuse; `export` judges that.
            try:
                export_onnx(network.model, network.example(), files[name], tolerance=math.inf)
            except GraphError:
                return Sessions()
            found.plain[name] = open_session(files[name], threads=threads)
        for name, network in networks.items():
            try:
                if material is not None:
                    small = _quantize(found, files[name], network, material)
                elif name in exported:
                    small = exported[name]
                else:
                    continue
                found.small[name] = open_session(small, threads=threads)
            except GraphError as error:
                found.troubles.append(f"{name} was not measured in int8: {error}")
            except Exception as error:  # a file that is damaged; onnxruntime has errors of its own
                if material is not None:
                    raise
                found.troubles.append(f"{small} cannot be run ({str(error).splitlines()[0]}); export it anew")
    return found


def _quantize(found: Sessions, plain: Path, network: RunNetwork, material: Material) -> Path:
    recorded = "normalization" in network.metadata
    fitting = material.normalized(network.normalization() if recorded else None)
    small = plain.with_name(f"{network.name}{SUFFIX}")
    quantize(plain, small, fitting.batches(pixels=False))
    found.figures[network.name] = measure(plain, small, fitting, pixels=False)
    return small
