"""A network that came from an ONNX file, written back with its names, axes, opset and metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import open_session, require
from deeppruning.errors import GraphError
from deeppruning.exporting.parity import difference_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.importing.network import OnnxNetwork, rounding_of
from deeppruning.importing.onnx import MOST_ROUNDING
from deeppruning.importing.refusing import DOMAINS
from deeppruning.importing.writing import to_onnx
from deeppruning.system.files import write_atomically

HALF = 3e-2  # what half precision may differ by, relative to the largest output


def write_as_read(network: OnnxNetwork, path: Path, tolerance: float) -> float:
    """Write the file, unless onnxruntime computes something else with it; returns the largest difference."""
    content = as_read(network)
    difference = check_file(network, content, tolerance)
    write_atomically(path, content)
    return difference


def as_read(network: OnnxNetwork) -> bytes:
    """The content of a file, with batch norms folded and removed layers left out where that is possible."""
    require("onnx")
    require("onnxruntime")
    form = deployed(network, network.example_inputs())
    try:
        return to_onnx(form if isinstance(form, OnnxNetwork) else network)
    except GraphError:
        return to_onnx(network)


def check_file(network: OnnxNetwork, content: bytes, tolerance: float) -> float:
    """The largest difference of the file's outputs from the network's; GraphError if it is too large.

    Outputs beyond 1 are compared relative to the largest. A file that leaves the batch free is run on two.
    """
    session = open_session(content)
    types = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    types += [kind for step in network.wiring.steps for kind in step.types]
    worst, largest = 0.0, 1.0
    for inputs in _trial_inputs(network, session):
        with torch.no_grad():
            expected = tensors_in(network(**inputs))
        worst = max(worst, difference_of(expected, run_named(session, inputs)))
        largest = max([largest, *(float(output.abs().max()) for output in expected if output.numel())])
    allowed = max(tolerance, HALF if any("float16" in kind for kind in types) else 0.0) * largest
    if worst > allowed:
        rounding = max(rounding_of(network, inputs) for inputs in _trial_inputs(network, session))
        allowed = max(allowed, min(rounding, MOST_ROUNDING * largest))
    if worst > allowed:
        raise GraphError(
            f"the file differs from PyTorch by {worst:.1e} on outputs of up to {largest:.1e}, over the "
            f"tolerance of {allowed:.0e}; nothing was written"
        )
    return worst


def renamed(content: bytes, network: OnnxNetwork) -> bytes:
    """A file that torch's exporter has written, with the names and metadata of the file that was read."""
    onnx = require("onnx")
    model, header = onnx.load_from_string(content), network.wiring.header
    described, graph = onnx.ModelProto.FromString(header.model), onnx.GraphProto.FromString(header.graph)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(model, field, getattr(described, field))
    model.metadata_props.extend(described.metadata_props)
    model.graph.name, model.graph.doc_string = graph.name, graph.doc_string
    pairs = [*zip(model.graph.input, graph.input, strict=True)]
    pairs += zip(model.graph.output, graph.output, strict=True)
    names = {ours.name: theirs.name for ours, theirs in pairs}
    for ours, theirs in pairs:
        ours.name = theirs.name
    taken = set(names.values()) - set(names)
    for node in model.graph.node:
        for values in (node.input, node.output):
            for place, name in enumerate(values):
                values[place] = names.get(name, f"{name}_inner" if name in taken else name)
    for tensor in model.graph.initializer:
        tensor.name = f"{tensor.name}_inner" if tensor.name in taken else tensor.name
    del model.graph.value_info[:]
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def opset_of(path: Path) -> int:
    """The opset of a file."""
    model = require("onnx").load(str(path), load_external_data=False)
    return max(int(entry.version) for entry in model.opset_import if entry.domain in DOMAINS)


def run_named(session: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    """The outputs of a session for inputs by name."""
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    return [torch.from_numpy(output) for output in session.run(None, arrays)]


def _trial_inputs(network: OnnxNetwork, session: Any) -> list[dict[str, Tensor]]:
    """Random inputs, of a second batch size where the file allows it."""
    inputs = network.example_inputs()
    free = all(each.shape and not isinstance(each.shape[0], int) for each in session.get_inputs())
    if not free:
        return [inputs]
    try:
        more = {name: torch.cat([tensor, tensor[:1]]) for name, tensor in inputs.items()}
        run_named(session, more)
    except Exception:  # the axis has a name, but not every size; onnxruntime has errors of its own
        return [inputs]
    return [inputs, more]
