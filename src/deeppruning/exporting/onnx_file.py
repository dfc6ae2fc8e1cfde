"""A network as an ONNX file with a free batch, checked by running it in onnxruntime."""

import copy
from collections.abc import Callable, Mapping
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
    with_listed_outputs,
)
from deeppruning.deploying.simplify import simplified
from deeppruning.errors import DeepPruningError, GraphError
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.normalized import Normalized
from deeppruning.exporting.parity import TOLERANCE, check_parity, refuse_changing
from deeppruning.system.files import replace_atomically


def export_onnx(
    model: nn.Module,
    example_input: Tensor,
    path: str | Path,
    *,
    normalization: Normalization | None = None,
    opset: int = OPSET,
    tolerance: float = TOLERANCE,
    metadata: Mapping[str, str] | None = None,
) -> float:
    """Write `model` as ONNX and return the largest difference of its outputs from PyTorch's.

    The input is called "images"; its first dimension is free. With a normalisation, the file takes
    pixels of 0..255 as floats. A file that does not compute the same is not written.
    """
    require("onnx")
    require("onnxruntime")
    network = as_exported(model, normalization)
    example = example_input.detach().cpu()
    refuse_changing(network, example, tolerance=tolerance)
    form = with_listed_outputs(deployed(network, example), example)
    differences: list[float] = []
    failures: list[Exception] = []

    def check(temporary: Path) -> None:
        _describe(temporary, metadata or {})
        session = open_session(temporary)
        differences.append(
            check_parity(
                network,
                lambda images: run_session(session, images),
                example,
                pixels=normalization is not None,
                tolerance=tolerance,
            )
        )

    def write(temporary: Path) -> None:
        for exporter in (export_by_tracing, export_by_graph):
            try:
                exporter(form, example, temporary, opset)
                if not _is_simplified(temporary, check):
                    check(temporary)
                return
            except OSError:
                raise
            except Exception as error:
                failures.append(error)
        if isinstance(failures[0], DeepPruningError):
            raise failures[0]
        reason = str(failures[0]).strip().split("\n")[0]
        raise GraphError(f"this network cannot be exported to ONNX: {reason}") from failures[0]

    replace_atomically(Path(path), write)
    return differences[0]


def as_exported(model: nn.Module, normalization: Normalization | None) -> nn.Module:
    """A copy of the network in the form it is exported in: on the processor, in evaluation mode."""
    own = copy.deepcopy(model)
    network = own if normalization is None else Normalized(own, normalization)
    return network.cpu().eval()


def _is_simplified(path: Path, check: Callable[[Path], None]) -> bool:
    """Rewrite a file more simply, if it then still passes the check; else it is as it was."""
    before = path.read_bytes()
    try:
        path.write_bytes(simplified(before))
        check(path)
    except OSError:
        raise
    except Exception:  # onnxruntime has errors of its own
        path.write_bytes(before)
        return False
    return True


def _describe(path: Path, metadata: Mapping[str, str]) -> None:
    """Check the file by ONNX's own rules and write the metadata into it."""
    onnx = require("onnx")
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))
    model.producer_name = "deeppruning"
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def write_onnx(export: Export, path: Path) -> float:
    """Write what is to be exported as ONNX and return the largest difference of its outputs."""
    return export_onnx(
        export.model,
        export.example(),
        path,
        normalization=export.normalization,
        tolerance=export.tolerance,
        metadata=export.metadata,
    )


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
