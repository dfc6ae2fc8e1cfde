"""int8: an ONNX file in whole numbers of eight bits, by onnxruntime's own static quantisation."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from deeppruning.data.stream import Images
from deeppruning.deploying.onnx_graph import INPUT, open_session, require, run_session
from deeppruning.errors import DeepPruningError, GraphError
from deeppruning.exporting.calibration import Material, labelled
from deeppruning.exporting.formats import Export
from deeppruning.exporting.onnx_file import as_exported, write_onnx
from deeppruning.exporting.parity import check_parity
from deeppruning.runs.facts import Int8Figures
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.files import write_atomically
from deeppruning.training.evaluate import check_outputs

SUFFIX = "-int8.onnx"


def export_int8(export: Export, path: Path, material: Material) -> tuple[float, Int8Figures]:
    """Write a network as an int8 file, calibrated and measured; gives the difference from PyTorch too.

    The float file that it is made of is checked as ever, and not kept.
    """
    # Of any precision, single is the one that is quantised.
    model = copy.deepcopy(export.model).float()
    wanted = replace(export, model=model, example=lambda: export.example().float())
    with scratch_folder() as folder:
        plain, small = folder / "float.onnx", folder / "int8.onnx"
        write_onnx(wanted, plain)
        pixels = wanted.normalization is not None
        quantize(plain, small, material.batches(pixels=pixels))
        _check(wanted, small)
        difference = _difference(plain, small, next(material.batches(pixels=pixels)))
        figures = measure(plain, small, material, pixels=pixels)
        write_atomically(path, small.read_bytes())
    return difference, figures


def quantize(plain: Path, target: Path, batches: Iterator[Tensor]) -> None:
    """An int8 file made of a float one: activations unsigned, weights signed and channel by channel.

    Weights use seven of their bits: processors without instructions for int8 add two products in sixteen
    bits, which would overflow, and the file must give the same numbers everywhere.
    """
    require("onnx")
    require("onnxruntime")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises a rewriting that the float file has had already
    try:
        tools = require("onnxruntime.quantization")

        class Reader(tools.CalibrationDataReader):  # type: ignore[misc,name-defined]
            """Hands out the inputs, batch by batch."""

            def get_next(self) -> dict[str, Any] | None:
                batch = next(batches, None)
                return None if batch is None else {INPUT: batch.numpy()}

        tools.quantize_static(
            plain,
            target,
            Reader(),
            quant_format=tools.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=tools.QuantType.QUInt8,
            weight_type=tools.QuantType.QInt8,
        )
    except (OSError, DeepPruningError):
        raise
    except Exception as error:  # its errors are of every kind
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise GraphError(
            f"onnxruntime cannot quantise this network: {reason}; nothing was written"
        ) from error
    finally:
        logging.disable(before)


def measure(plain: Path, small: Path, material: Material, *, pixels: bool) -> Int8Figures:
    """Sizes of both files, and the test error of each where there are test images."""
    figures = Int8Figures(
        file_bytes=small.stat().st_size,
        float_file_bytes=plain.stat().st_size,
        calibration_inputs=len(material.calibration),
        test_error=None,
        float_test_error=None,
        test_images=None,
    )
    if material.test is not None:
        figures["float_test_error"] = error_of(plain, material.test, pixels=pixels)
        figures["test_error"] = error_of(small, material.test, pixels=pixels)
        figures["test_images"] = len(material.test)
    return figures


def error_of(file: Path, test: Images, *, pixels: bool) -> float:
    """The share of test images that a file gets wrong, run in onnxruntime."""
    session, wrong = open_session(file), 0
    for images, labels in labelled(test, pixels=pixels):
        outputs = run_session(session, images)
        check_outputs(outputs[0] if len(outputs) == 1 else outputs, len(labels), test.num_classes)
        wrong += int((outputs[0].argmax(dim=1) != labels).sum())
    return wrong / len(test)


def _check(export: Export, small: Path) -> None:
    """Refuse a file that nothing was quantised in, or whose outputs are of other shapes or no numbers."""
    nodes = require("onnx").load(str(small)).graph.node
    if not any(node.op_type == "QuantizeLinear" for node in nodes):
        raise GraphError("this network has no layer that onnxruntime quantises; nothing was written")
    session = open_session(small)
    difference = check_parity(
        as_exported(export.model, export.normalization),
        lambda images: run_session(session, images),
        export.example(),
        pixels=export.normalization is not None,
        tolerance=math.inf,
    )
    if not math.isfinite(difference):
        raise GraphError("the quantised network gives outputs that are no numbers; nothing was written")


def _difference(plain: Path, small: Path, inputs: Tensor) -> float:
    """The largest one of two files' outputs, for inputs of the kind that was calibrated on."""
    outputs = zip(*(run_session(open_session(file), inputs) for file in (plain, small)), strict=True)
    return max(float((ours - theirs).abs().max()) for ours, theirs in outputs)
