"""int8: an ONNX file quantised by onnxruntime, the images it is calibrated on, and what it costs."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deeppruning.config import USUAL_SAMPLE, SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.convert import as_images
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample, has_balanced
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import Images, ImageStream, Pass
from deeppruning.deploying.onnx_graph import open_session, require, run_session
from deeppruning.errors import DeepPruningError, GraphError, InputError, RunError, reason_of
from deeppruning.exporting.formats import Export
from deeppruning.exporting.onnx_file import write_onnx
from deeppruning.exporting.parity import check_parity
from deeppruning.jobs.classification import set_aside
from deeppruning.limits import Limits
from deeppruning.runs import RunFolder
from deeppruning.runs.facts import INT8, Int8Figures
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.files import write_atomically
from deeppruning.training.evaluate import check_outputs

SUFFIX = "-int8.onnx"
BATCH = 50


@dataclass(frozen=True, eq=False)
class Material:
    """Inputs to calibrate on, and test images where there are any."""

    calibration: ImageSet | Tensor
    test: Images | None = None

    def normalized(self, normalization: Normalization | None) -> Material:
        """The same images, normalised as a network expects them; tensors of inputs stay as they are."""
        if normalization is None:
            return self
        sets = [
            replace(each, normalization=normalization) if isinstance(each, Images) else each
            for each in (self.calibration, self.test)
        ]
        return Material(*sets)  # type: ignore[arg-type]

    def batches(self, *, pixels: bool) -> Iterator[Tensor]:
        """The calibration inputs as a file takes them, batch by batch."""
        if isinstance(self.calibration, ImageSet):
            yield from (images for images, _ in _labelled_batches(self.calibration, pixels=pixels))
        else:
            yield from torch.split(self.calibration.detach().cpu().float(), BATCH)


@dataclass(frozen=True)
class MaterialSource:
    """Where the images come from: passed from Python, named again, or as the run recorded them."""

    calibration: Any = None
    test: Any = None
    data: str | None = None  # instead of the data that the run names
    data_dir: Path | None = None
    test_images: int | None = None  # fewer than all, balanced over the classes
    trust_run: bool = False

    def open(self, run_dir: str | Path | None) -> Material:
        """Read the images; InputError where there are none."""
        if self.test_images is not None and self.test_images < 1:
            raise InputError(f"test images must be at least 1, got {self.test_images}")
        if self.calibration is not None:
            images = self.calibration
            inputs = images if isinstance(images, Tensor) else as_images(images).in_memory()
            if len(inputs) == 0:
                raise InputError("calibration holds no inputs; give at least one, better a few hundred")
            return Material(
                inputs, None if self.test is None else self._fewer_test_images(as_images(self.test))
            )
        if run_dir is None:
            raise InputError(
                "int8 of a network that no run has saved needs calibration: a few hundred inputs of it"
            )
        with RunFolder.open(run_dir, read_only=True) as run:
            splits = self._load_run_data(run)
            test = splits.test if self.test is None else as_images(self.test)
            return Material(_sample_of_search(run, splits.train), self._fewer_test_images(test))

    def _load_run_data(self, run: RunFolder) -> DataSplits:
        """The data that the run recorded, or that was named instead."""
        recorded = run.config.get("data", {})
        if self.data is None and "data" not in recorded:
            raise InputError(
                f"int8 is calibrated on images, and {run.path} was started from Python and does not record "
                "its data; give some: --data on the command line, calibration=inputs (and test=images) in "
                "dp.export and dp.bench"
            )
        if self.data is None and not self.trust_run:
            run.refuse_foreign_code(["data"])
        if self.data is None:
            run.open_imports()
        folder = self.data_dir or (recorded.get("data_dir") if self.data is None else None)
        size = recorded.get("image_size")
        return load_data(
            self.data or recorded["data"], data_dir=folder, image_size=None if size is None else tuple(size)
        )

    def _fewer_test_images(self, test: Images) -> Images:
        if self.test_images is None or self.test_images >= len(test):
            return test
        return _balanced_part(test, self.test_images, seed=0)


def export_int8(export: Export, path: Path, material: Material) -> tuple[float, Int8Figures]:
    """Write a network as a calibrated int8 file; returns the difference from PyTorch and what it costs.

    The float file that it is made from is checked as always, and not kept.
    """
    # onnxruntime quantises single precision only.
    model, example = copy.deepcopy(export.model).float(), export.example
    export = replace(export, model=model, example=lambda: example().float())
    pixels = export.normalization is not None
    with scratch_folder() as folder:
        plain, small = folder / "float.onnx", folder / "int8.onnx"
        write_onnx(export, plain)
        quantize(plain, small, material.batches(pixels=pixels))
        _check_quantized(export, small)
        difference = _difference_of_int8(plain, small, next(material.batches(pixels=pixels)))
        figures = measure(plain, small, material, pixels=pixels)
        write_atomically(path, small.read_bytes())
    return difference, figures


def keep_int8(run_dir: str | Path, figures: Mapping[str, Int8Figures]) -> str:
    """Record the figures in the run, next to earlier ones; returns the reason if that is not possible."""
    try:
        with RunFolder.open(run_dir) as run:
            earlier = run.history.get_fact(INT8) or {}
            run.history.set_fact(INT8, {**earlier, **figures})
    except RunError as error:
        return str(error)
    return ""


def quantize(plain: Path, target: Path, batches: Iterator[Tensor]) -> None:
    """Make an int8 file of a float one: activations unsigned, weights signed and per channel.

    Weights use seven of their bits: CPUs without instructions for int8 add two products in sixteen
    bits, which would overflow, and the file must give the same numbers everywhere.
    """
    require("onnx")
    require("onnxruntime")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it recommends preprocessing that the float file already had
    try:
        tools = require("onnxruntime.quantization")
        taken = open_session(plain).get_inputs()[0].name

        class Reader(tools.CalibrationDataReader):  # type: ignore[misc,name-defined]
            """Hands out the inputs, batch by batch."""

            def get_next(self) -> dict[str, Any] | None:
                batch = next(batches, None)
                return None if batch is None else {taken: batch.numpy()}

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
        raise GraphError(
            f"onnxruntime cannot quantise this network: {reason_of(error)}; nothing was written"
        ) from error
    finally:
        logging.disable(before)


def measure(plain: Path, small: Path, material: Material, *, pixels: bool) -> Int8Figures:
    """Sizes of both files, and the test error of each where there are test images."""
    test = material.test
    return Int8Figures(
        file_bytes=small.stat().st_size,
        float_file_bytes=plain.stat().st_size,
        calibration_inputs=len(material.calibration),
        test_error=None if test is None else error_of(small, test, pixels=pixels),
        float_test_error=None if test is None else error_of(plain, test, pixels=pixels),
        test_images=None if test is None else len(test),
    )


def error_of(file: Path, test: Images, *, pixels: bool) -> float:
    """The share of test images that a file classifies wrongly, run in onnxruntime."""
    session, wrong = open_session(file), 0
    for images, labels in _labelled_batches(test, pixels=pixels):
        outputs = run_session(session, images)
        check_outputs(outputs[0] if len(outputs) == 1 else outputs, len(labels), test.num_classes)
        wrong += int((outputs[0].argmax(dim=1) != labels).sum())
    return wrong / len(test)


def _check_quantized(export: Export, small: Path) -> None:
    """Refuse a file in which nothing was quantised, or with outputs of other shapes or not finite."""
    nodes = require("onnx").load(str(small)).graph.node
    if not any(node.op_type == "QuantizeLinear" for node in nodes):
        raise GraphError("this network has no layer that onnxruntime quantises; nothing was written")
    session = open_session(small)
    difference = check_parity(
        export.network(),
        lambda images: run_session(session, images),
        export.example(),
        pixels=export.normalization is not None,
        tolerance=math.inf,
    )
    if not math.isfinite(difference):
        raise GraphError("outputs of the quantised network are not finite; nothing was written")


def _difference_of_int8(plain: Path, small: Path, inputs: Tensor) -> float:
    """The largest difference between the outputs of two files, for inputs of the calibration."""
    outputs = zip(*(run_session(open_session(file), inputs) for file in (plain, small)), strict=True)
    return max(float((ours - theirs).abs().max()) for ours, theirs in outputs)


def _labelled_batches(data: Images, *, pixels: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Images as a file takes them (pixels of 0..255, or normalised) with their labels, batch by batch."""
    places = list(torch.split(torch.arange(len(data)), BATCH))
    if isinstance(data, ImageStream):
        batches = data.batches(places, Pass())
    else:
        batches = ((data.images[part], data.labels[part]) for part in places)
    for images, labels in batches:
        ready = images.float() if pixels else normalize(images, data.normalization)
        yield ready.contiguous(), labels


def _sample_of_search(run: RunFolder, train: Images) -> ImageSet:
    """The images that the search evaluated its candidates on, as far as this data has them."""
    search = SearchConfig.from_table(run.config["search"])
    trained_on, _ = set_aside(train, Limits.of(run.config.get("target")), search.seed)
    return _balanced_part(trained_on, min(search.sample or USUAL_SAMPLE, len(trained_on)), search.seed)


def _balanced_part(data: Images, size: int, seed: int) -> ImageSet:
    """Some of the images, read into memory; equally many per class where there are enough of each."""
    if has_balanced(data, size, seed):
        return balanced_sample(data, size, seed)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    return data.subset(order[:size].sort().values).in_memory()
