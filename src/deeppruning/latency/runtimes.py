"""What runs networks: one layer of given widths, or a whole network, as a call that can be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import (
    INPUT,
    OPSET,
    export_by_graph,
    export_by_tracing,
    open_session,
    require,
    simplified,
)
from deeppruning.errors import InputError
from deeppruning.latency.conditions import Conditions
from deeppruning.latency.layers import LayerShape
from deeppruning.latency.stopwatch import Forward
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.device import device_or_cpu

_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)


class Runtime(ABC):
    """A way to run networks under some conditions."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    @property
    @abstractmethod
    def version(self) -> str:
        """Of the package that runs them: another one may be faster."""

    @abstractmethod
    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        """One layer with these extents of its weight, on the inputs of a batch."""

    def nothing(self) -> Forward | None:
        """What calling `layer` takes beside the layer, where a network pays that once and not for each."""
        return None

    @abstractmethod
    def network(self, network: nn.Module, example_input: Any) -> Forward:
        """A whole network in its deployment form, on a batch made of the example input; it may be changed."""


class TorchRuntime(Runtime):
    """PyTorch as it comes, without compilation."""

    @property
    def version(self) -> str:
        return f"torch {torch.__version__}"

    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        device = device_or_cpu(self.conditions.device)
        weight = torch.randn(*extents, *shape.kernel, device=device)
        inside, outside, groups = shape.channels(extents)
        bias = torch.zeros(outside, device=device)
        if not shape.kernel:
            rows = torch.randn(self.conditions.batch * shape.size[0], inside, device=device)
            return _waited_for(lambda: functional.linear(rows, weight, bias), device)
        maps = torch.randn(self.conditions.batch, inside, *shape.size, device=device)
        if shape.transposed:
            back = _TRANSPOSED[len(shape.kernel) - 1]
            return _waited_for(
                lambda: back(maps, weight, bias, shape.stride, shape.padding, 0, groups, shape.dilation),
                device,
            )
        convolve = _CONVOLUTIONS[len(shape.kernel) - 1]
        return _waited_for(
            lambda: convolve(maps, weight, bias, shape.stride, shape.padding, shape.dilation, groups), device
        )

    def network(self, network: nn.Module, example_input: Any) -> Forward:
        return self.as_loaded(deployed(network.cpu().eval(), example_input), example_input)

    def as_loaded(self, network: nn.Module, example_input: Any) -> Forward:
        """A whole network as it is, with its batch norms, on a batch made of the example input."""
        device = device_or_cpu(self.conditions.device)
        network = network.to(device).eval()
        batch = _repeated(example_input, self.conditions.batch, device)
        kwargs = batch if isinstance(batch, Mapping) else {}
        args = () if kwargs else tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        return _waited_for(lambda: network(*args, **kwargs), device)


class OnnxRuntime(Runtime):
    """onnxruntime on the processor, on what torch's exporters make of the network."""

    @property
    def version(self) -> str:
        return f"onnxruntime {require('onnxruntime').__version__}"

    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        make = require("onnx").helper
        inside, outside, groups = shape.channels(extents)
        weight = np.random.default_rng(0).standard_normal((*extents, *shape.kernel), dtype=np.float32)
        if shape.kernel:
            size = [self.conditions.batch, inside, *shape.size]
            node = make.make_node(
                "ConvTranspose" if shape.transposed else "Conv",
                [INPUT, "weight", "bias"],
                ["answer"],
                kernel_shape=shape.kernel,
                strides=shape.stride,
                pads=shape.padding * 2,
                dilations=shape.dilation,
                group=groups,
            )
        else:
            size = [self.conditions.batch * shape.size[0], inside]
            node = make.make_node("Gemm", [INPUT, "weight", "bias"], ["answer"], transB=1)
        bias = np.zeros(outside, dtype=np.float32)
        return self._node(node, torch.randn(*size), {"weight": weight, "bias": bias})

    def nothing(self) -> Forward:
        identity = require("onnx").helper.make_node("Identity", [INPUT], ["answer"])
        return self._node(identity, torch.zeros(1), {})

    def _node(self, node: Any, images: Tensor, weights: Mapping[str, NDArray[np.float32]]) -> Forward:
        """A session that computes one thing."""
        onnx = require("onnx")
        make, kind = onnx.helper, onnx.TensorProto.FLOAT
        graph = make.make_graph(
            [node],
            "layer",
            [make.make_tensor_value_info(INPUT, kind, list(images.shape))],
            [make.make_tensor_value_info("answer", kind, None)],
            [onnx.numpy_helper.from_array(values, name) for name, values in weights.items()],
        )
        model = make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)], ir_version=9)
        return self._session(model.SerializeToString(), images)

    def network(self, network: nn.Module, example_input: Any) -> Forward:
        if isinstance(example_input, tuple) and len(example_input) == 1:
            (example_input,) = example_input
        if not isinstance(example_input, Tensor):
            raise InputError(
                "the latency in onnxruntime can be had of networks that take one tensor; "
                "choose the runtime torch"
            )
        example = example_input.detach().cpu().float()
        network = deployed(network.cpu().float().eval(), example)
        with scratch_folder() as folder:
            file = folder / "network.onnx"
            try:
                export_by_tracing(network, example, file, OPSET)
            except Exception:  # whatever tracing does not understand
                export_by_graph(network, example, file, OPSET)
            content = _simpler(file.read_bytes())
        return self._session(content, _repeated(example, self.conditions.batch, torch.device("cpu")))

    def _session(self, content: bytes, images: Tensor) -> Forward:
        session, values = open_session(content, threads=self.conditions.threads), images.numpy()
        return lambda: session.run(None, {INPUT: values})[0]


def runtime_for(conditions: Conditions) -> Runtime:
    """What runs networks under these conditions."""
    return OnnxRuntime(conditions) if conditions.runtime == "onnxruntime" else TorchRuntime(conditions)


def _simpler(content: bytes) -> bytes:
    """As an export would be written, where that works: what it computes is checked there."""
    try:
        return simplified(content)
    except Exception:  # onnxruntime has errors of its own
        return content


def _waited_for(forward: Forward, device: torch.device) -> Forward:
    """Without gradients, and until the device has done it."""

    def call() -> object:
        with torch.inference_mode():
            answer = forward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return answer

    return call


def _repeated(example_input: Any, batch: int, device: torch.device) -> Any:
    def repeat(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        there = leaf.detach().to(device)
        return there[:1].expand(batch, *there.shape[1:]).contiguous() if there.dim() else there

    return tree_map(repeat, example_input)
