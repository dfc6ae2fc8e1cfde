"""A network as an ONNX file with a free batch size, checked by running it in onnxruntime."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import (
    OPSET,
    export_by_graph,
    export_by_tracing,
    open_session,
    require,
    run_session,
    simplified,
    with_listed_outputs,
)
from deeppruning.errors import DeepPruningError, GraphError, reason_of
from deeppruning.exporting.as_read import check_file, renamed, write_as_read
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.parity import TOLERANCE, check_parity, refuse_changing
from deeppruning.importing.network import OnnxNetwork
from deeppruning.system.files import replace_atomically


def export_onnx(
    model: nn.Module,
    example_input: Tensor,
    path: str | Path,
    *,
    normalization: Normalization | None = None,
    tolerance: float = TOLERANCE,
    metadata: Mapping[str, str] | None = None,
) -> float:
    """Write `model` as ONNX and return the largest difference of its outputs from PyTorch's.

    The input is called "images"; its first dimension is free. With a normalisation, the file takes
    pixels of 0..255 as floats. A network of `from_onnx` is written with the names, axes, opset and metadata
    of its file. A file that does not compute the same is not written.
    """
    export = Export(model, lambda: example_input, normalization, tolerance, metadata)
    return write_onnx(export, Path(path))


def write_onnx(export: Export, path: Path) -> float:
    """Write an ONNX file and return the largest difference of its outputs from PyTorch's."""
    require("onnx")
    require("onnxruntime")
    original = export.model if isinstance(export.model, OnnxNetwork) else None
    if export.normalization is not None:
        original = None  # the file takes other inputs than the one that was read
    if original is not None:
        with suppress(GraphError):  # then torch's exporters may know what to do with it
            return write_as_read(original, path, export.tolerance)
    network = export.network()
    example = export.example().detach().cpu()
    refuse_changing(network, example, tolerance=export.tolerance)
    form = with_listed_outputs(deployed(network, example), example)
    differences: list[float] = []

    def check(temporary: Path, content: bytes) -> None:
        if original is not None:
            whole = renamed(content, original)
            temporary.write_bytes(whole)
            differences.append(check_file(original, whole, export.tolerance))
            return
        temporary.write_bytes(_with_onnx_metadata(content, export.metadata or {}))
        session = open_session(temporary)
        difference = check_parity(
            network,
            lambda images: run_session(session, images),
            example,
            pixels=export.normalization is not None,
            tolerance=export.tolerance,
        )
        differences.append(difference)

    def write(temporary: Path) -> None:
        failures: list[Exception] = []
        for exporter in (export_by_tracing, export_by_graph):
            try:
                exporter(form, example, temporary, OPSET)
                content = temporary.read_bytes()
                try:
                    check(temporary, simplified(content))
                except OSError:
                    raise
                except Exception:  # onnxruntime has errors of its own
                    check(temporary, content)
                return
            except OSError:
                raise
            except Exception as error:
                failures.append(error)
        if isinstance(failures[0], DeepPruningError):
            raise failures[0]
        raise GraphError(f"this network cannot be exported to ONNX: {reason_of(failures[0])}") from failures[
            0
        ]

    replace_atomically(path, write)
    return differences[0]


def _with_onnx_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """The file's content with the metadata in it, checked by ONNX's own rules."""
    onnx = require("onnx")
    model = onnx.load_from_string(content)
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))
    model.producer_name = "deeppruning"
    onnx.checker.check_model(model)
    described: bytes = model.SerializeToString(deterministic=True)
    return described


FORMATS.add(
    Format(
        name="onnx",
        suffix=".onnx",
        about="ONNX file",
        write=write_onnx,
        detail=f"ONNX, opset {OPSET}",
        needs=("onnx", "onnxruntime"),
    ),
    place=10,
)
