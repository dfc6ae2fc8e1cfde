"""The runtimes: PyTorch or onnxruntime runs one layer, or a whole network, as a call that can be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from deeppruning.config import SearchConfig
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
from deeppruning.errors import GraphError, InputError
from deeppruning.graph.calls import as_call
from deeppruning.importing.network import OnnxNetwork
from deeppruning.importing.writing import to_onnx
from deeppruning.latency.layers import LayerShape
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.device import device_or_cpu

Forward = Callable[[], object]

_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)


@dataclass(frozen=True)
class Conditions:
    """The conditions of a measurement: runtime, batch size, threads and device."""

    runtime: str = "torch"
    batch: int = 1
    threads: int = 1
    device: str = "cpu"  # onnxruntime always runs on the CPU

    @classmethod
    def of(cls, search: SearchConfig, device: str) -> Conditions:
        """The conditions in the options of a search, on a device."""
        return cls(search.latency_runtime, search.latency_batch, search.latency_threads, device)

    def __str__(self) -> str:
        inputs = "one input" if self.batch == 1 else f"{self.batch} inputs"
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.runtime}, {inputs}, {threads if self.device == 'cpu' else self.device}"


class Runtime(ABC):
    """Runs layers and networks under some conditions."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions

    @property
    @abstractmethod
    def version(self) -> str:
        """Name and version of the package."""

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes, and not another device that it waits for."""
        return True

    @abstractmethod
    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        """A call of one layer with these extents of its weight, on a batch."""

    def nothing(self) -> Forward | None:
        """A call of no layer, if calls have an overhead that a network pays once and not for each layer."""
        return None

    @abstractmethod
    def network(self, network: nn.Module, example_input: Any) -> Forward:
        """A call of a whole network in its deployment form, on a batch of the example; may change it."""


class TorchRuntime(Runtime):
    """PyTorch without compilation."""

    @property
    def version(self) -> str:
        """The version of torch."""
        return f"torch {torch.__version__}"

    @property
    def on_cpu(self) -> bool:
        """Whether the device is a CPU."""
        return device_or_cpu(self.conditions.device).type == "cpu"

    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        """A call of one layer in PyTorch."""
        device = device_or_cpu(self.conditions.device)
        weight = torch.randn(*extents, *shape.kernel, device=device)
        inside, outside, groups = shape.channels(extents)
        bias = torch.zeros(outside, device=device)
        if not shape.kernel:
            rows = torch.randn(self.conditions.batch * shape.size[0], inside, device=device)
            return _synchronised_call(lambda: functional.linear(rows, weight, bias), device)
        maps = torch.randn(self.conditions.batch, inside, *shape.size, device=device)
        kinds = _TRANSPOSED if shape.transposed else _CONVOLUTIONS
        options = {
            "stride": shape.stride,
            "padding": shape.padding,
            "dilation": shape.dilation,
            "groups": groups,
        }
        convolve: Any = kinds[len(shape.kernel) - 1]
        return _synchronised_call(lambda: convolve(maps, weight, bias, **options), device)

    def network(self, network: nn.Module, example_input: Any) -> Forward:
        """A call of the deployed network in PyTorch."""
        return self.as_loaded(deployed(network.cpu().eval(), example_input), example_input)

    def as_loaded(self, network: nn.Module, example_input: Any) -> Forward:
        """A call of a whole network as it is, with its batch norms, on a batch of the example input."""
        device = device_or_cpu(self.conditions.device)
        network = network.to(device).eval()
        args, kwargs = as_call(_repeated_to_batch(example_input, self.conditions.batch, device))
        return _synchronised_call(lambda: network(*args, **kwargs), device)


class OnnxRuntime(Runtime):
    """onnxruntime on the CPU, with the files that torch's exporters write."""

    @property
    def version(self) -> str:
        """The version of onnxruntime."""
        return f"onnxruntime {require('onnxruntime').__version__}"

    def layer(self, shape: LayerShape, extents: tuple[int, int]) -> Forward:
        """A call of an ONNX file with this one layer."""
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
        return self._call_of_node(node, torch.randn(*size), {"weight": weight, "bias": bias})

    def nothing(self) -> Forward:
        """A call of a file that copies its input."""
        identity = require("onnx").helper.make_node("Identity", [INPUT], ["answer"])
        return self._call_of_node(identity, torch.zeros(1), {})

    def _call_of_node(self, node: Any, images: Tensor, weights: Mapping[str, NDArray[np.float32]]) -> Forward:
        """A call of one operation."""
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
        return self._session_call(model.SerializeToString(), images)

    def network(self, network: nn.Module, example_input: Any) -> Forward:
        """A call of the network as an ONNX file; the error says why where there is none."""
        if isinstance(network, OnnxNetwork):
            with suppress(GraphError):  # else as any other network
                return self._own_file(network, example_input)
        if isinstance(example_input, tuple) and len(example_input) == 1:
            (example_input,) = example_input
        if not isinstance(example_input, Tensor):
            raise InputError(
                "the latency in onnxruntime can be measured for networks that take one tensor; "
                "choose the runtime torch"
            )
        example = example_input.detach().cpu().float()
        network = deployed(network.cpu().float().eval(), example)
        with scratch_folder() as folder:
            file = folder / "network.onnx"
            try:
                export_by_tracing(network, example, file, OPSET)
            except Exception:  # tracing does not support the network
                export_by_graph(network, example, file, OPSET)
            content = file.read_bytes()
        with suppress(Exception):  # onnxruntime has errors of its own; exports are checked elsewhere
            content = simplified(content)
        return self._session_call(
            content, _repeated_to_batch(example, self.conditions.batch, torch.device("cpu"))
        )

    def _own_file(self, network: OnnxNetwork, example_input: Any) -> Forward:
        """A call of a network that came from an ONNX file, as it is written back."""
        args, kwargs = as_call(_repeated_to_batch(example_input, self.conditions.batch, torch.device("cpu")))
        form = deployed(network.cpu().eval(), example_input)
        session = open_session(to_onnx(form), threads=self.conditions.threads)  # type: ignore[arg-type]
        kinds = {each.name: each.type for each in session.get_inputs()}
        named = {**dict(zip(network.input_names, args, strict=False)), **kwargs}
        values = {
            name: (value.half() if kinds[name] == "tensor(float16)" else value).numpy()
            for name, value in named.items()
        }
        return lambda: session.run(None, values)

    def _session_call(self, content: bytes, images: Tensor) -> Forward:
        session, values = open_session(content, threads=self.conditions.threads), images.numpy()
        return lambda: session.run(None, {INPUT: values})[0]


def runtime_for(conditions: Conditions) -> Runtime:
    """The runtime of these conditions."""
    return OnnxRuntime(conditions) if conditions.runtime == "onnxruntime" else TorchRuntime(conditions)


def _synchronised_call(forward: Forward, device: torch.device) -> Forward:
    """A call without gradients that waits for the device."""

    def call() -> object:
        with torch.inference_mode():
            answer = forward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return answer

    return call


def _repeated_to_batch(example_input: Any, batch: int, device: torch.device) -> Any:
    def repeat(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        there = leaf.detach().to(device)
        return there[:1].expand(batch, *there.shape[1:]).contiguous() if there.dim() else there

    return tree_map(repeat, example_input)
