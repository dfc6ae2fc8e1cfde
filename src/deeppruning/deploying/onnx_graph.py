"""From a network to an ONNX graph by torch's exporters, and running one in onnxruntime."""

import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.system.commands import how_to_install

OPSET = 18  # the oldest that both exporters of torch write; runtimes since 2023 read it
INPUT = "images"


def require(package: str, *, what: str = "ONNX") -> Any:
    """An optional package, or an error that says what needs it and how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{what} needs the package {package}: {how_to_install(package)}") from error


def has_onnx() -> bool:
    """Whether ONNX files can be written and run here."""
    try:
        return bool(require("onnx") and require("onnxruntime"))
    except InputError:
        return False


def open_session(graph: Path | bytes, *, threads: int = 1) -> Any:
    """An onnxruntime session on the processor, of a file or of what would be in it."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait would take the processor from whatever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = graph if isinstance(graph, bytes) else graph.read_bytes()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, images: Tensor) -> list[Tensor]:
    """The outputs of a session for a batch of images."""
    return [torch.from_numpy(output) for output in session.run(None, {INPUT: images.numpy()})]


def export_by_tracing(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
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


def export_by_graph(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
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


class _Listed(nn.Module):
    """A network whose outputs are a plain tuple of tensors, which is all that exporters know."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensors_in(self.network(images)))


def with_listed_outputs(network: nn.Module, example: Tensor) -> nn.Module:
    """The network, or one around it that lists its outputs, where they come in a class of its own."""
    with torch.no_grad():
        output = network(example)
    return network if _is_plain(output) else _Listed(network)


def _is_plain(output: Any) -> bool:
    if type(output) in (tuple, list):
        return all(map(_is_plain, output))
    return all(map(_is_plain, output.values())) if type(output) is dict else isinstance(output, Tensor)
