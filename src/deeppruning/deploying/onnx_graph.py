"""ONNX graphs: written by torch's exporters, simplified, and run in onnxruntime."""

import importlib
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.commands import how_to_install

OPSET = 18  # the oldest that both exporters of torch write; runtimes since 2023 read it
INPUT = "images"
_STANDARD = ("", "ai.onnx")  # domains of operations that every runtime knows


def require(package: str, *, what: str = "ONNX") -> Any:
    """Import an optional package; the error says what needs it and how to install it."""
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
    """An onnxruntime session on the CPU, of a file or of its content."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait would take the CPU from whatever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = graph if isinstance(graph, bytes) else graph.read_bytes()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, images: Tensor) -> list[Tensor]:
    """The outputs of a session for a batch of images."""
    name = session.get_inputs()[0].name
    return [torch.from_numpy(output) for output in session.run(None, {name: images.numpy()})]


def export_by_tracing(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
    """The older exporter: much faster, and right unless the forward branches on the data."""
    names = _onnx_output_names(network, example)
    axes = {name: {0: "batch"} for name in (INPUT, *names)}
    _export_quietly(network, example, path, names, opset_version=opset, dynamo=False, dynamic_axes=axes)


def export_by_graph(network: nn.Module, example: Tensor, path: Path, opset: int) -> None:
    """The newer exporter, for what tracing gets wrong; its example batch must be larger than one."""
    require("onnxscript")
    pair, names = torch.cat([example[:1], example[:1]]), _onnx_output_names(network, example)
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    files = {"external_data": False, "verbose": False}
    _export_quietly(
        network, pair, path, names, opset_version=opset, dynamo=True, dynamic_shapes=shapes, **files
    )


def _export_quietly(
    network: nn.Module, example: Tensor, path: Path, names: Sequence[str], **options: Any
) -> None:
    """Export without the exporters' own warnings: the file is checked afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # The older exporter prints the graph it failed on, to standard output.
    print_to = getattr(torch._C, "_jit_set_onnx_log_output_stream", lambda stream: None)
    print_to("stderr")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network, (example,), str(path), input_names=[INPUT], output_names=names, **options
            )
    finally:
        logging.disable(before)


def _onnx_output_names(network: nn.Module, example: Tensor) -> Sequence[str]:
    with torch.no_grad():
        count = len(tensors_in(network(example)))
    if count == 0:
        raise InputError("this network returns no tensor, so there is nothing to export")
    return ["logits"] if count == 1 else [f"output_{place}" for place in range(count)]


class _Listed(nn.Module):
    """A network with its outputs as a plain tuple of tensors, the only form that exporters accept."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The outputs as a tuple."""
        return tuple(tensors_in(self.network(images)))


def with_listed_outputs(network: nn.Module, example: Tensor) -> nn.Module:
    """The network, wrapped so that it returns a tuple where its outputs are of a class of their own."""
    with torch.no_grad():
        output = network(example)
    return network if _is_tensor_or_tuple(output) else _Listed(network)


def _is_tensor_or_tuple(output: Any) -> bool:
    if type(output) in (tuple, list):
        return all(map(_is_tensor_or_tuple, output))
    return (
        all(map(_is_tensor_or_tuple, output.values())) if type(output) is dict else isinstance(output, Tensor)
    )


def simplified(content: bytes) -> bytes:
    """A file's content rewritten; the caller checks what it computes.

    onnxruntime's basic rewriting folds constants and fuses operations. What it leaves of removed branches,
    concatenations with tensors that have no channels, is removed here.
    """
    model = _rewritten_by_onnxruntime(require("onnx").load_from_string(content))
    while _drop_empty_parts(model):
        model = _rewritten_by_onnxruntime(model)
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def _rewritten_by_onnxruntime(model: Any) -> Any:
    """The model after onnxruntime's basic rewriting; unchanged if that uses operations of its own."""
    onnx, runtime = (require(name) for name in ("onnx", "onnxruntime"))
    with scratch_folder() as folder:
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folder / "rewritten.onnx")
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        rewritten = onnx.load(options.optimized_model_filepath)
    if any(node.domain not in _STANDARD for node in rewritten.graph.node):
        return model
    for entry in [entry for entry in rewritten.opset_import if entry.domain not in _STANDARD]:
        rewritten.opset_import.remove(entry)
    return rewritten


def _drop_empty_parts(model: Any) -> bool:
    """Take tensors without channels out of concatenations, in place, with the operations that made them."""
    graph = model.graph
    inferred = require("onnx").shape_inference.infer_shapes(model).graph
    empty = {tensor.name for tensor in graph.initializer if 0 in tensor.dims}
    for value in inferred.value_info:
        dimensions = value.type.tensor_type.shape.dim
        if any(each.HasField("dim_value") and each.dim_value == 0 for each in dimensions):
            empty.add(value.name)
    changed = False
    for node in graph.node:
        parts = [name for name in node.input if name not in empty]
        if node.op_type == "Concat" and parts and len(parts) < len(node.input):
            changed = True
            del node.input[:]
            node.input.extend(parts)
            if len(parts) == 1:
                node.op_type = "Identity"
                del node.attribute[:]
    if changed:
        needed = {value.name for value in graph.output}
        for node in reversed(list(graph.node)):
            if needed & set(node.output):
                needed.update(node.input)
            else:
                graph.node.remove(node)
        del graph.value_info[:]
    return changed
