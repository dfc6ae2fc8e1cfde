"""Nodes as modules: those with weights as torch's own layers, those with sizes as ones that follow them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.importing.file import OnnxNode
from deeppruning.importing.modules import (
    AverageInside,
    ConstantPad,
    Expand,
    Padding,
    Pieces,
    Reshape,
    SamePad,
    Split,
)
from deeppruning.importing.sizes import even_pieces, reshape_parts, slice_as_pieces
from deeppruning.importing.values import integers, scalar

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
Constants = Sequence["NDArray[Any] | None"]  # of a node's inputs, None where one is computed
Builder = Callable[[OnnxNode, Sequence[Any], Constants], "nn.Module | None"]


def _window(node: OnnxNode, rank: int) -> tuple[list[int], list[int], list[int], Padding | None, list[int]]:
    """Strides, dilations and padding of a sliding window; uneven padding is a module before it."""
    attributes = node.attributes
    stride = attributes.get("strides") or [1] * rank
    dilation = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * 2 * rank
    kernel = attributes.get("kernel_shape") or []
    automatic = attributes.get("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        before: Padding | None = SamePad(kernel, stride, dilation, upper=automatic == "SAME_UPPER")
        return stride, dilation, [0] * rank, before, kernel
    low, high = pads[:rank], pads[rank:]
    if automatic == "VALID":
        low = high = [0] * rank
    if low == high and min(low, default=0) >= 0:
        return stride, dilation, low, None, kernel
    around = [amount for pair in reversed(list(zip(low, high, strict=True))) for amount in pair]
    return stride, dilation, [0] * rank, ConstantPad(around), kernel


def _padded(before: Padding | None, layer: nn.Module) -> nn.Module:
    """A layer behind the padding that torch's own cannot do."""
    return layer if before is None else nn.Sequential(before, layer)


def _around(padding: Sequence[int]) -> Padding:
    """The same padding before a window: torch allows no more than half of the window inside it."""
    return ConstantPad([side for amount in reversed(padding) for side in (amount, amount)])


def _fill(layer: nn.Module, **tensors: NDArray[Any] | None) -> None:
    """Put weights into a layer, in the type that the file has them in."""
    for name, array in tensors.items():
        if array is None:
            continue
        tensor = torch.from_numpy(np.array(array))
        if isinstance(getattr(layer, name), nn.Parameter):
            setattr(layer, name, nn.Parameter(tensor))
        else:
            layer.register_buffer(name, tensor)


def convolution(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Conv, where its weight is constant."""
    weight, bias = constants[1], constants[2] if len(constants) > 2 else None
    if weight is None or (len(values) > 2 and values[2] is not None and bias is None):
        return None
    rank, groups = weight.ndim - 2, node.attributes.get("group", 1)
    node.attributes.setdefault("kernel_shape", list(weight.shape[2:]))
    stride, dilation, padding, before, _ = _window(node, rank)
    with torch.device("meta"):
        layer = CONVOLUTIONS[rank](
            weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), tuple(stride), tuple(padding),
            tuple(dilation), groups, bias=bias is not None,
        )  # fmt: skip
    _fill(layer, weight=weight, bias=bias)
    return _padded(before, layer)


def transposed(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """ConvTranspose, where its weight is constant; uneven padding is cropped behind it."""
    weight, bias = constants[1], constants[2] if len(constants) > 2 else None
    if weight is None or (len(values) > 2 and values[2] is not None and bias is None):
        return None
    rank, groups, attributes = weight.ndim - 2, node.attributes.get("group", 1), node.attributes
    stride, dilation, output = (
        attributes.get(name) or [usual] * rank
        for name, usual in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    windows = [(size - 1) * gap + 1 for size, gap in zip(weight.shape[2:], dilation, strict=True)]
    low, high = _transposed_pads(node, list(values[0].shape[2:]), windows, stride, output)
    padding = [min(pair) for pair in zip(low, high, strict=True)]
    with torch.device("meta"):
        layer: nn.Module = TRANSPOSED[rank](
            weight.shape[0], weight.shape[1] * groups, tuple(weight.shape[2:]), tuple(stride),
            tuple(padding), tuple(output), groups, bias is not None, tuple(dilation),
        )  # fmt: skip
    _fill(layer, weight=weight, bias=bias)
    if low == high:
        return layer
    ends = [(even - before, even - behind) for before, behind, even in zip(low, high, padding, strict=True)]
    return nn.Sequential(layer, ConstantPad([side for pair in reversed(ends) for side in pair]))


def _transposed_pads(
    node: OnnxNode, sizes: Sequence[int], windows: Sequence[int], stride: Sequence[int], output: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What a transposed convolution leaves out before and behind, as written or as its output's size asks."""
    rank, automatic = len(windows), node.attributes.get("auto_pad", "NOTSET")
    pads = node.attributes.get("pads") or [0] * 2 * rank
    wanted = (node.attributes.get("output_shape") or [])[-rank:]
    if not wanted and automatic in ("NOTSET", "VALID"):
        return (list(pads[:rank]), list(pads[rank:])) if automatic == "NOTSET" else ([0] * rank, [0] * rank)
    wanted = wanted or [size * step for size, step in zip(sizes, stride, strict=True)]
    total = [
        max(0, step * (size - 1) + more + window - asked)
        for step, size, more, window, asked in zip(stride, sizes, output, windows, wanted, strict=True)
    ]
    small, large = [each // 2 for each in total], [each - each // 2 for each in total]
    return (small, large) if automatic == "SAME_UPPER" else (large, small)


def batch_norm(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """BatchNormalization with constant statistics."""
    scale, bias, mean, variance = constants[1:5]
    if scale is None or bias is None or mean is None or variance is None:
        return None
    momentum = 1.0 - node.attributes.get("momentum", 0.9)
    kind, eps = NORMS[values[0].dim()], node.attributes.get("epsilon", 1e-5)
    layer: nn.Module = kind(len(scale), eps=eps, momentum=momentum)
    _fill(layer, weight=scale, bias=bias, running_mean=mean, running_var=variance)
    return layer


def instance_norm(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """InstanceNormalization."""
    if constants[1] is None or constants[2] is None:
        return None
    kind = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}[values[0].dim()]
    layer = kind(len(constants[1]), eps=node.attributes.get("epsilon", 1e-5), affine=True)
    _fill(layer, weight=constants[1], bias=constants[2])
    return layer


def layer_norm(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """LayerNormalization with a constant scale over the last axes."""
    scale, bias = constants[1], constants[2] if len(constants) > 2 else None
    axis = node.attributes.get("axis", -1) % values[0].dim()
    if scale is None or scale.shape != tuple(values[0].shape[axis:]):
        return None
    layer = nn.LayerNorm(scale.shape, eps=node.attributes.get("epsilon", 1e-5), bias=bias is not None)
    _fill(layer, weight=scale, bias=bias)
    return layer


def group_norm(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """GroupNormalization; before opset 21 its scale is one a group."""
    groups, channels = node.attributes["num_groups"], values[0].shape[1]
    if constants[1] is None or constants[2] is None:
        return None
    scale, bias = (np.repeat(array, channels // len(array)) for array in (constants[1], constants[2]))
    layer = nn.GroupNorm(groups, channels, eps=node.attributes.get("epsilon", 1e-5))
    _fill(layer, weight=scale, bias=bias)
    return layer


def linear(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Gemm and MatMul by a constant matrix."""
    weight, attributes = constants[1], node.attributes
    bias = constants[2] if len(constants) > 2 else None
    if weight is None or weight.ndim != 2 or attributes.get("transA", 0) or values[0].dim() < 2:
        return None
    if len(values) > 2 and values[2] is not None and bias is None:
        return None
    if not attributes.get("transB", 0):
        weight = weight.T
    weight = weight * np.asarray(attributes.get("alpha", 1.0), weight.dtype)
    if bias is not None:
        bias = np.broadcast_to(bias, (weight.shape[0],)) if bias.size in (1, weight.shape[0]) else None
        if bias is None:
            return None
        bias = bias.reshape(-1) * np.asarray(attributes.get("beta", 1.0), weight.dtype)
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    _fill(layer, weight=np.ascontiguousarray(weight), bias=bias)
    return layer


def prelu(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """PRelu with a slope a channel, or one for all."""
    slope = constants[1]
    if slope is None or slope.size not in (1, values[0].shape[1]):
        return None
    layer = nn.PReLU(slope.size)
    _fill(layer, weight=slope.reshape(-1))
    return layer


def max_pool(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module:
    """MaxPool; padding beyond half of the window comes before it."""
    rank = values[0].dim() - 2
    stride, dilation, padding, before, kernel = _window(node, rank)
    if any(2 * amount > size for amount, size in zip(padding, kernel, strict=True)):
        before, padding = _around(padding), [0] * rank
    if before is not None:
        before.value = -math.inf
    kind = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[rank]
    ceil = bool(node.attributes.get("ceil_mode", 0))
    return _padded(
        before, kind(tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode=ceil)
    )


def average_pool(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module:
    """AveragePool."""
    rank = values[0].dim() - 2
    stride, dilation, padding, before, kernel = _window(node, rank)
    counted = bool(node.attributes.get("count_include_pad", 0))
    if any(gap != 1 for gap in dilation):
        raise InputError(f"the node {node.name!r} (AveragePool) has dilation, which is not supported")
    if before is None and any(2 * amount > size for amount, size in zip(padding, kernel, strict=True)):
        before, padding = _around(padding), [0] * rank
    kind = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}[rank]
    ceil = bool(node.attributes.get("ceil_mode", 0))
    pool = kind(tuple(kernel), tuple(stride), tuple(padding), ceil, counted)
    return _padded(before, pool) if before is None or counted else AverageInside(before, pool)


def global_pool(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module:
    """GlobalAveragePool."""
    return {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[values[0].dim() - 2](1)


def reshape(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Reshape to written or computed sizes, each of which follows from the input where that can be told."""
    if not isinstance(values[0], Tensor) or isinstance(values[1], Tensor):
        return None
    keep_zero = bool(node.attributes.get("allowzero", 0))
    wanted = integers(values[1])
    sizes = [
        values[0].shape[place] if size == 0 and not keep_zero else int(size)
        for place, size in enumerate(wanted)
    ]
    target = tuple(values[0].reshape(sizes).shape)
    parts = reshape_parts(tuple(values[0].shape), target)
    written = None if constants[1] is None else [int(size) for size in wanted]
    return None if parts is None else Reshape(parts, written)


def split(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Split; equal pieces stay equal whatever is left of the channels."""
    axis, value = node.attributes.get("axis", 0), values[0]
    if not isinstance(value, Tensor):
        return None
    written = node.attributes.get("split") or (
        integers(constants[1]) if constants[1:] and constants[1] is not None else []
    )
    count = node.attributes.get("num_outputs", len(node.outputs))
    if not written:
        return Split(axis, pieces=count)
    pieces = even_pieces(written)
    return Split(axis, pieces=pieces) if pieces else Split(axis, sizes=[int(size) for size in written])


def slice_(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Slice of one axis at ends that are multiples of a part of it."""
    given = dict(zip(("starts", "ends", "axes", "steps"), constants[1:], strict=False))
    if any(name and given.get(key) is None for key, name in zip(given, node.inputs[1:], strict=False)):
        return None  # they are computed
    given |= {key: value for key, value in node.attributes.items() if key in ("starts", "ends", "axes")}
    starts, ends, axes, steps = (
        default if given.get(key) is None else integers(given[key])
        for key, default in (("starts", []), ("ends", []), ("axes", [0]), ("steps", [1]))
    )
    if len(starts) != 1 or len(ends) != 1 or steps != [1] or not isinstance(values[0], Tensor):
        return None
    pieces = slice_as_pieces(values[0], int(axes[0]), int(starts[0]), int(ends[0]))
    return None if pieces is None else Pieces(int(axes[0]), *pieces)


def expand(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module | None:
    """Expand to written sizes: where the input has that size already, it follows the input."""
    if constants[1] is None or not isinstance(values[0], Tensor):
        return None
    shape = np.broadcast_shapes(tuple(values[0].shape), tuple(int(size) for size in integers(constants[1])))
    lead = len(shape) - values[0].dim()
    own = [1] * lead + list(values[0].shape)
    return Expand(
        [
            size if own_size != size or place < lead else -1
            for place, (own_size, size) in enumerate(zip(own, shape, strict=True))
        ]
    )


def dropout(node: OnnxNode, values: Sequence[Any], constants: Constants) -> nn.Module:
    """Dropout, which does nothing but in training."""
    rate = node.attributes.get("ratio", 0.5)
    if len(constants) > 1 and constants[1] is not None:
        rate = scalar(constants[1])
    return nn.Dropout(float(rate))


BUILDERS: dict[str, Builder] = {
    "Conv": convolution,
    "ConvTranspose": transposed,
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "GroupNormalization": group_norm,
    "Gemm": linear,
    "MatMul": linear,
    "PRelu": prelu,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": global_pool,
    "Reshape": reshape,
    "Split": split,
    "Slice": slice_,
    "Expand": expand,
    "Dropout": dropout,
}
SIZES = {"Reshape", "Slice", "Expand"}  # builders that make written sizes follow the tensors
