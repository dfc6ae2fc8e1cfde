"""A network as an ONNX file with a free batch, checked by running it in onnxruntime."""

import copy
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.deploying import deploy
from deeppruning.errors import DeepPruningError, GraphError, InputError
from deeppruning.exporting import formats
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.normalized import Normalized
from deeppruning.exporting.onnx_graph import simplified
from deeppruning.exporting.parity import TOLERANCE, check_parity, tensors_in
from deeppruning.system.atomic import replace_atomically

OPSET = 18  # the oldest that both exporters of torch write; runtimes since 2023 read it
INPUT = "images"


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
    form = deployed(network, example)
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
        for exporter in (_export_by_tracing, _export_by_graph):
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


def require(package: str) -> Any:
    """A package that ONNX files need."""
    return formats.require(package, what="ONNX")


def has_onnx() -> bool:
    """Whether ONNX files can be written and run here."""
    try:
        return bool(require("onnx") and require("onnxruntime"))
    except InputError:
        return False


def as_exported(model: nn.Module, normalization: Normalization | None) -> nn.Module:
    """A copy of the network in the form it is exported in: on the processor, in evaluation mode."""
    own = copy.deepcopy(model)
    network = own if normalization is None else Normalized(own, normalization)
    return network.cpu().eval()


def deployed(network: nn.Module, example: Tensor) -> nn.Module:
    """The network in its deployment form; as it is where that cannot be had, for it may still be exported."""
    try:
        return deploy(network, example)
    except GraphError:
        return network


def open_session(path: Path, *, threads: int = 1) -> Any:
    """An onnxruntime session on the processor."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait would take the processor from whatever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])


def run_session(session: Any, images: Tensor) -> list[Tensor]:
    """The outputs of a session for a batch of images."""
    return [torch.from_numpy(output) for output in session.run(None, {INPUT: images.numpy()})]


def _export_by_tracing(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
    """The older exporter: tens of times faster, and right unless the forward branches on the data."""
    names = _output_names(network, example)
    axes = {name: {0: "batch"} for name in (INPUT, *names)}
    _quietly(
        torch.onnx.export,
        network,
        (example,),
        str(path),
        dynamo=False,
        input_names=[INPUT],
        output_names=names,
        dynamic_axes=axes,
        opset_version=opset,
    )


def _export_by_graph(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
    """The newer exporter, for what tracing gets wrong; it wants an example batch above one."""
    require("onnxscript")
    pair = torch.cat([example[:1], example[:1]])
    _quietly(
        torch.onnx.export,
        network,
        (pair,),
        str(path),
        dynamo=True,
        input_names=[INPUT],
        output_names=_output_names(network, example),
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        opset_version=opset,
        external_data=False,
        verbose=False,
    )


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


def _quietly(export: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Without the exporters' notes on themselves: what counts is checked afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # The older exporter prints the graph it failed on; standard output belongs to the command's own words.
    print_to = getattr(torch._C, "_jit_set_onnx_log_output_stream", lambda stream: None)
    print_to("stderr")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            export(*args, **options)
    finally:
        logging.disable(before)


def _output_names(network: nn.Module, example: Tensor) -> Sequence[str]:
    with torch.no_grad():
        count = len(tensors_in(network(example)))
    if count == 0:
        raise InputError("this network returns no tensor, so there is nothing to export")
    return ["logits"] if count == 1 else [f"output_{place}" for place in range(count)]


def _describe(path: Path, metadata: Mapping[str, str]) -> None:
    """Check the file by ONNX's own rules and write the metadata into it."""
    onnx = require("onnx")
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))
    model.producer_name = "deeppruning"
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _write(export: Export, path: Path) -> float:
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
        write=_write,
        detail=f"ONNX, opset {OPSET}",
        needs=("onnx", "onnxruntime"),
    ),
    place=10,
)
