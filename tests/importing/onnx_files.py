"""Small ONNX files for the tests of reading and writing them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

IMAGE = ("x", [1, 3, 8, 8])


def model_of(
    nodes: Sequence[Any],
    *,
    inputs: Sequence[tuple[str, Any]] = (IMAGE,),
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> Any:
    """A file of a few nodes."""
    arrays = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        arrays,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def written(folder: Path, model: Any, name: str = "model.onnx") -> Path:
    """The file of a model."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def answers(path: Path | bytes, **inputs: Any) -> list[np.ndarray]:
    """What onnxruntime answers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = path if isinstance(path, bytes) else str(path)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.asarray(value) for name, value in inputs.items()})


class Varied(nn.Module):
    """Operations whose sizes an exporter writes down: flatten, chunk, shuffle; a gate, an upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2)
        self.gate = nn.Conv2d(8, 8, 1)
        self.third = nn.Conv2d(12, 6, 3, padding=1)
        self.head = nn.Linear(6 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = self.second(x)
        batch, channels, height, width = x.shape
        x = (
            x.view(batch, 2, channels // 2, height, width)
            .transpose(1, 2)
            .reshape(batch, channels, height, width)
        )
        x = x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True)))
        left, right = x.chunk(2, 1)
        x = torch.cat([left, nn.functional.hardswish(right), left + right], 1)
        x = self.third(x)
        x = nn.functional.max_pool2d(nn.functional.interpolate(x, scale_factor=2.0), 2)
        return torch.softmax(self.head(x.flatten(1)), -1)


def varied() -> nn.Module:
    """Such a network with statistics in its batch norm."""
    torch.manual_seed(0)
    network = Varied()
    with torch.no_grad():
        network.norm.running_mean.normal_()
        network.norm.running_var.uniform_(0.5, 2.0)
    return network.eval()


def exported(network: nn.Module, path: Path, opset: int = 17, **options: Any) -> Path:
    """The file that torch's older exporter writes, with names, a free batch and metadata."""
    settings: dict[str, Any] = {
        "dynamo": False, "input_names": ["images"], "output_names": ["scores"], "opset_version": opset,
        "dynamic_axes": {"images": {0: "batch"}, "scores": {0: "batch"}}, **options,
    }  # fmt: skip
    torch.onnx.export(network, (torch.zeros(1, 3, 8, 8),), str(path), **settings)
    model = onnx.load(str(path))
    helper.set_model_props(model, {"names": "cat, dog"})
    model.doc_string, model.model_version, model.graph.doc_string = "a classifier", 3, "its graph"
    path.write_bytes(model.SerializeToString())
    return path
