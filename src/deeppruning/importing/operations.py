"""ONNX operations without weights, one line each: a function of values and attributes.

A value is a tensor, or on the host: sizes read from tensors and what is computed of them are numpy arrays of
Python integers, so that no size is ever taken from the contents of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.errors import InputError

Host: TypeAlias = NDArray[Any]
OnnxFunction: TypeAlias = Callable[..., Any]
OPERATIONS: dict[str, OnnxFunction] = {}
HOST: dict[str, OnnxFunction] = {}  # of values on the host alone


def operation(*names: str) -> Callable[[OnnxFunction], OnnxFunction]:
    """Enter a function under the names of ONNX."""

    def enter(function: OnnxFunction) -> OnnxFunction:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return enter


def run(op: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """One operation on tensors, or on host values where all of them are."""
    if op in HOST and inputs and all(not isinstance(one, Tensor) and np.ndim(one) <= 1 for one in inputs):
        result = HOST[op](*inputs, **attributes)
        if result is not None:
            return result
    first, *others = inputs
    return OPERATIONS[op](as_tensor(first) if isinstance(first, np.ndarray) else first, *others, **attributes)


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """A value of either kind as a tensor, on the device of another one."""
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    if array.dtype == object:
        array = array.astype(np.int64)
    return torch.as_tensor(array, device=None if like is None else like.device)


def on_host(sizes: Sequence[Any]) -> Host:
    """Sizes as an array of objects: during an export they are symbols, which numpy must not convert."""
    array = np.empty(len(sizes), dtype=object)
    for place, size in enumerate(sizes):
        array[place] = size
    return array


def integers(value: Any) -> list[int]:
    """Sizes, axes and positions, wherever they are kept."""
    if isinstance(value, Tensor):
        return [int(one) for one in value.flatten().tolist()]
    return list(np.asarray(value).reshape(-1))


def scalar(value: Any) -> Any:
    """A single number, out of whatever it is wrapped in."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[0].item() if value.dtype != object else value.reshape(-1)[0]
    return value


def dtype_of(code: int) -> torch.dtype:
    """The torch type of an ONNX type."""
    types = {
        1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
        9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
    }  # fmt: skip
    if code not in types:
        raise InputError(f"tensors of ONNX type {code} are not supported")
    return types[code]


def _pair(function: Callable[[Any, Any], Any]) -> OnnxFunction:
    """Of two values that broadcast; one on the host is a constant, or a size."""

    def apply(left: Any, right: Any, **_: Any) -> Any:
        like = left if isinstance(left, Tensor) else right
        left, right = (_operand(one, like) for one in (left, right))
        return function(left, right)

    return apply


def _operand(value: Any, like: Any) -> Any:
    if isinstance(value, np.ndarray):
        return scalar(value) if value.size == 1 else as_tensor(value, like)
    return value


def _divide(left: Any, right: Any) -> Any:
    whole = all(
        one.dtype in (torch.int32, torch.int64) if isinstance(one, Tensor) else isinstance(one, int)
        for one in (left, right)
    )
    return torch.div(left, right, rounding_mode="trunc") if whole else left / right


def _each(function: Callable[..., Any]) -> OnnxFunction:
    return lambda value, **attributes: function(as_tensor(value), **attributes)


def _several(function: Callable[[Any, Any], Any]) -> OnnxFunction:
    def apply(first: Any, *others: Any, **_: Any) -> Any:
        result = first
        for other in others:
            result = _pair(function)(result, other)
        return result

    return apply


def _tensors(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Any]:
    """For functions of torch that want two tensors, where one of the two may be a number."""

    def apply(left: Any, right: Any) -> Any:
        like = left if isinstance(left, Tensor) else right
        if not isinstance(like, Tensor):
            return function(torch.as_tensor(left), torch.as_tensor(right))
        both = (
            one if isinstance(one, Tensor) else torch.as_tensor(one, dtype=like.dtype, device=like.device)
            for one in (left, right)
        )
        return function(*both)

    return apply


OPERATIONS.update(
    Add=_pair(lambda a, b: a + b),
    Sub=_pair(lambda a, b: a - b),
    Mul=_pair(lambda a, b: a * b),
    Div=_pair(_divide),
    Pow=_pair(lambda a, b: a**b),
    Equal=_pair(lambda a, b: a == b),
    Greater=_pair(lambda a, b: a > b),
    GreaterOrEqual=_pair(lambda a, b: a >= b),
    Less=_pair(lambda a, b: a < b),
    LessOrEqual=_pair(lambda a, b: a <= b),
    And=_pair(_tensors(torch.logical_and)),
    Or=_pair(_tensors(torch.logical_or)),
    Xor=_pair(_tensors(torch.logical_xor)),
    Max=_several(_tensors(torch.maximum)),
    Min=_several(_tensors(torch.minimum)),
    Sum=_several(lambda a, b: a + b),
    Abs=_each(torch.abs),
    Ceil=_each(torch.ceil),
    Cos=_each(torch.cos),
    Erf=_each(torch.erf),
    Exp=_each(torch.exp),
    Floor=_each(torch.floor),
    Identity=lambda value: value,
    Log=_each(torch.log),
    Mish=_each(F.mish),
    Neg=_each(torch.neg),
    Not=_each(torch.logical_not),
    Reciprocal=_each(torch.reciprocal),
    Relu=_each(F.relu),
    Round=_each(torch.round),
    Sigmoid=_each(torch.sigmoid),
    Sign=_each(torch.sign),
    Sin=_each(torch.sin),
    Softplus=_each(F.softplus),
    Softsign=_each(F.softsign),
    Sqrt=_each(torch.sqrt),
    Tan=_each(torch.tan),
    Tanh=_each(torch.tanh),
    IsNaN=_each(torch.isnan),
    MatMul=lambda left, right: torch.matmul(as_tensor(left), as_tensor(right)),
    Einsum=lambda *values, equation: torch.einsum(equation, *map(as_tensor, values)),
    Elu=lambda value, alpha=1.0: F.elu(value, alpha),
    Celu=lambda value, alpha=1.0: F.celu(value, alpha),
    Selu=lambda value, **_: F.selu(value),
    LeakyRelu=lambda value, alpha=0.01: F.leaky_relu(value, alpha),
    ThresholdedRelu=lambda value, alpha=1.0: torch.where(value > alpha, value, torch.zeros_like(value)),
    HardSigmoid=lambda value, alpha=0.2, beta=0.5: torch.clamp(value * alpha + beta, 0.0, 1.0),
    HardSwish=_each(F.hardswish),
    Gelu=lambda value, approximate="none": F.gelu(value, approximate=approximate),
    Transpose=lambda value, perm=None: value.permute(perm or list(range(value.dim()))[::-1]),
    Concat=lambda *values, axis: torch.cat([as_tensor(one) for one in values], dim=axis),
    Gather=lambda value, indices, axis=0: _gather(as_tensor(value), indices, axis),
    GatherElements=lambda value, indices, axis=0: torch.gather(value, axis, as_tensor(indices, value)),
    Where=lambda condition, yes, no: _where(condition, yes, no),
    Shape=lambda value, start=0, end=None: on_host(list(value.shape)[start:end]),
    Size=lambda value: on_host([math.prod(value.shape)]).reshape(()),
    GlobalMaxPool=lambda value: torch.amax(value, dim=tuple(range(2, value.dim())), keepdim=True),
    Trilu=lambda value, k=0, upper=1: (torch.triu if upper else torch.tril)(value, int(scalar(k))),
    CumSum=lambda value, axis, **_: torch.cumsum(value, int(scalar(axis))),
)  # fmt: skip


def _gather(value: Tensor, indices: Any, axis: int) -> Tensor:
    if not isinstance(indices, Tensor):
        places = np.asarray(indices)
        if places.ndim == 0:
            return value.select(axis, int(scalar(places)))
        indices = as_tensor(places, value)
    indices = torch.where(indices < 0, indices + value.shape[axis], indices)
    taken = torch.index_select(value, axis, indices.reshape(-1))
    axis = axis % value.dim()
    return taken.reshape(*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])


def _where(condition: Any, yes: Any, no: Any) -> Any:
    like = next((one for one in (yes, no, condition) if isinstance(one, Tensor)), None)
    yes, no = (_operand(one, like) for one in (yes, no))
    return torch.where(as_tensor(condition, like), yes, no)


@operation("Cast")
def cast(value: Any, to: int, **_: Any) -> Any:
    """Another type."""
    return as_tensor(value).to(dtype_of(to))


@operation("CastLike")
def cast_like(value: Any, target: Any, **_: Any) -> Any:
    """The type of another value."""
    return as_tensor(value).to(as_tensor(target).dtype)


@operation("Clip")
def clip(value: Tensor, low: Any = None, high: Any = None, **attributes: Any) -> Tensor:
    """Between bounds, of which either may be absent; old files have them as attributes."""
    low, high = attributes.get("min", low), attributes.get("max", high)
    low, high = (None if bound is None else scalar(bound) for bound in (low, high))
    return value if low is None and high is None else torch.clamp(value, low, high)


@operation("Softmax", "LogSoftmax")
def softmax(value: Tensor, axis: int = -1, *, logarithm: bool = False, flat: bool = False) -> Tensor:
    """Over one axis; before opset 13 over all axes from there on (`flat`)."""
    function = F.log_softmax if logarithm else F.softmax
    if not flat or axis % value.dim() == value.dim() - 1:
        return function(value, dim=axis)
    return function(value.flatten(axis % value.dim()), dim=-1).reshape(value.shape)


def _reduction(function: Callable[..., Tensor]) -> OnnxFunction:
    def apply(value: Tensor, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        dims = [] if axes is None else integers(axes)
        if not dims and noop_with_empty_axes:
            return value
        return function(as_tensor(value), dims or list(range(value.dim())), bool(keepdims))

    return apply


OPERATIONS.update(
    ReduceMean=_reduction(lambda value, dims, keep: value.mean(dims, keepdim=keep)),
    ReduceSum=_reduction(lambda value, dims, keep: value.sum(dims, keepdim=keep)),
    ReduceMax=_reduction(lambda value, dims, keep: value.amax(dims, keepdim=keep)),
    ReduceMin=_reduction(lambda value, dims, keep: value.amin(dims, keepdim=keep)),
    ReduceL1=_reduction(lambda value, dims, keep: value.abs().sum(dims, keepdim=keep)),
    ReduceL2=_reduction(lambda value, dims, keep: torch.linalg.vector_norm(value, dim=dims, keepdim=keep)),
    ReduceSumSquare=_reduction(lambda value, dims, keep: value.square().sum(dims, keepdim=keep)),
    ReduceLogSumExp=_reduction(lambda value, dims, keep: torch.logsumexp(value, dims, keepdim=keep)),
)


@operation("ReduceProd")
def reduce_prod(value: Tensor, axes: Any = None, keepdims: int = 1, **_: Any) -> Tensor:
    """Torch multiplies over one axis at a time."""
    for axis in sorted(
        one % value.dim() for one in (integers(axes) if axes is not None else range(value.dim()))
    )[::-1]:
        value = value.prod(axis, keepdim=bool(keepdims))
    return value


@operation("ArgMax", "ArgMin")
def arg_max(value: Tensor, axis: int = 0, keepdims: int = 1, *, least: bool = False, **_: Any) -> Tensor:
    """Where the largest or the least is."""
    return (torch.argmin if least else torch.argmax)(value, dim=axis, keepdim=bool(keepdims))


@operation("TopK")
def top_k(value: Tensor, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """The largest values and their places."""
    found = torch.topk(value, int(scalar(k)), dim=axis, largest=bool(largest), sorted=bool(sorted))
    return found.values, found.indices


@operation("Squeeze")
def squeeze(value: Tensor, axes: Any = None) -> Tensor:
    """Without axes of size one."""
    return value.squeeze() if axes is None else value.squeeze(tuple(integers(axes)))


@operation("Unsqueeze")
def unsqueeze(value: Any, axes: Any) -> Tensor:
    """With new axes of size one."""
    tensor, places = as_tensor(value), integers(axes)
    rank = tensor.dim() + len(places)
    for axis in sorted(one % rank for one in places):
        tensor = tensor.unsqueeze(axis)
    return tensor


@operation("Flatten")
def flatten(value: Tensor, axis: int = 1) -> Tensor:
    """A matrix: the axes before and from one on."""
    axis = axis % value.dim() if axis < 0 else axis
    return value.flatten(1) if axis == 1 else value.reshape(math.prod(value.shape[:axis]), -1)


@operation("Reshape")
def reshape(value: Tensor, shape: Any, allowzero: int = 0) -> Tensor:
    """Other sizes, where 0 stands for the size that the input has there."""
    sizes = integers(shape)
    return value.reshape(
        [value.shape[place] if size == 0 and not allowzero else size for place, size in enumerate(sizes)]
    )


@operation("Expand")
def expand(value: Any, shape: Any) -> Tensor:
    """Broadcast in both directions."""
    tensor = as_tensor(value)
    sizes = torch.broadcast_shapes(tensor.shape, tuple(integers(shape)))  # type: ignore[no-untyped-call]
    return tensor.expand(sizes)


@operation("Split")
def split(value: Tensor, sizes: Any = None, axis: int = 0, **_: Any) -> tuple[Tensor, ...]:
    """Pieces of computed sizes."""
    return tuple(torch.split(value, integers(sizes), axis))


@operation("Gemm")
def gemm(
    left: Tensor,
    right: Tensor,
    added: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """A product of computed matrices."""
    product = alpha * ((left.T if transA else left) @ (right.T if transB else right))
    return product if added is None else product + beta * added


@operation("Mod")
def mod(left: Any, right: Any, fmod: int = 0) -> Any:
    """The remainder, with the sign of the divisor unless it is that of floats."""
    return _pair(_tensors(torch.fmod if fmod else torch.remainder))(left, right)


@operation("Slice")
def slice_(value: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """A part along some axes; backward steps are turned around."""
    first, last = integers(starts), integers(ends)
    dims = list(range(len(first))) if axes is None else integers(axes)
    pace = [1] * len(first) if steps is None else integers(steps)
    for dim, start, end, step in zip(dims, first, last, pace, strict=True):
        if step < 0:
            places = list(range(value.shape[dim]))[_bounded(start, end, step)]
            value = value.index_select(dim, torch.tensor(places, device=value.device))
        else:
            before = (slice(None),) * (dim % value.dim())
            part = (*before, slice(start, end if end < 1 << 31 else None, step))
            value = value[part]
    return value


def _bounded(start: int, end: int, step: int) -> slice:
    return slice(start, None if end < -(1 << 31) else end, step)


@operation("Pad")
def pad(
    value: Tensor, pads: Any, constant: Any = None, axes: Any = None, mode: str = "constant", **old: Any
) -> Tensor:
    """Around some axes; torch counts them from the last."""
    amounts = integers(pads)
    dims = list(range(value.dim())) if axes is None else [one % value.dim() for one in integers(axes)]
    around = {dim: (amounts[place], amounts[place + len(dims)]) for place, dim in enumerate(dims)}
    flat = [amount for dim in reversed(range(value.dim())) for amount in around.get(dim, (0, 0))]
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    number = old.get("value", 0.0) if constant is None else scalar(constant)
    if mode == "constant":
        return F.pad(value, flat, value=float(number))
    return F.pad(value, flat, mode={"edge": "replicate", "wrap": "circular"}.get(mode, mode))


@operation("Tile")
def tile(value: Tensor, repeats: Any) -> Tensor:
    """Repeated along each axis."""
    return value.repeat(integers(repeats))


@operation("ConstantOfShape")
def constant_of_shape(shape: Any, value: Any = None) -> Tensor:
    """One number everywhere."""
    number = torch.zeros(1) if value is None else torch.as_tensor(np.array(value))
    return torch.full(integers(shape), number.reshape(-1)[0].item(), dtype=number.dtype)


@operation("Range")
def range_(start: Any, limit: Any, delta: Any) -> Tensor:
    """Numbers at equal distances."""
    return torch.arange(scalar(start), scalar(limit), scalar(delta))


@operation("DepthToSpace")
def depth_to_space(value: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become pixels; torch has the order CRD."""
    if mode == "CRD":
        return F.pixel_shuffle(value, blocksize)
    batch, channels, height, width = value.shape
    depth = channels // blocksize**2
    blocks = value.reshape(batch, blocksize, blocksize, depth, height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(batch, depth, height * blocksize, width * blocksize)


@operation("SpaceToDepth")
def space_to_depth(value: Tensor, blocksize: int) -> Tensor:
    """Pixels become channels, by blocks first."""
    batch, channels, height, width = value.shape
    blocks = value.reshape(batch, channels, height // blocksize, blocksize, width // blocksize, blocksize)
    deep = blocks.permute(0, 3, 5, 1, 2, 4)
    return deep.reshape(batch, channels * blocksize**2, height // blocksize, width // blocksize)


@operation("LpNormalization")
def lp_normalization(value: Tensor, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by its norm along an axis."""
    norm: Tensor = torch.linalg.vector_norm(value, ord=p, dim=axis, keepdim=True)
    return value / norm


@operation("LRN")
def local_response(
    value: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Local response normalisation."""
    return F.local_response_norm(value, size, alpha, beta, bias)


@operation("MeanVarianceNormalization")
def mean_variance(value: Tensor, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Less its mean, divided by its deviation."""
    centred = value - value.mean(list(axes), keepdim=True)
    return centred / (centred.square().mean(list(axes), keepdim=True).sqrt() + 1e-9)


@operation("GridSample")
def grid_sample(value: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "bilinear",
                padding_mode: str = "zeros") -> Tensor:  # fmt: skip
    """Sampled at given places."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(value, grid, kind, padding_mode, bool(align_corners))


@operation("Resize", "Upsample")
def resize(value: Tensor, *given: Any, **attributes: Any) -> Tensor:
    """Another size of the spatial axes, by scales or sizes of all of them."""
    # Inputs are scales alone in Upsample and in opset 10, then a region, scales and sizes.
    scales, sizes = (given[0], None) if len(given) == 1 else (*given[1:], None)[:2]
    mode = attributes.get("mode", "nearest")
    place = attributes.get("coordinate_transformation_mode", "half_pixel")
    spatial = value.dim() - 2
    kind = {"linear": {1: "linear", 2: "bilinear", 3: "trilinear"}.get(spatial), "cubic": "bicubic"}.get(
        mode, "nearest"
    )
    options: dict[str, Any] = {"mode": kind}
    if kind != "nearest":
        options["align_corners"] = place == "align_corners"
    elif place != "asymmetric" or attributes.get("nearest_mode", "round_prefer_floor") != "floor":
        options["mode"] = "nearest-exact" if place in ("half_pixel", "pytorch_half_pixel") else "nearest"
    if sizes is not None:
        return F.interpolate(value, size=[int(one) for one in integers(sizes)[-spatial:]], **options)
    factors = [float(one) for one in np.asarray(as_tensor(scales)).reshape(-1)[-spatial:]]
    target = [int(size * factor) for size, factor in zip(value.shape[2:], factors, strict=True)]
    return F.interpolate(value, size=target, **options)


def _host_cast(value: Host, to: int, **_: Any) -> Host:
    """Sizes stay what they are; only a fraction becomes whole, and only a truth value is made one."""
    kind = dtype_of(to)
    if kind == torch.bool:
        return np.asarray(value).astype(bool)
    flat = np.asarray(value, dtype=object).reshape(-1)
    whole = [int(one) if isinstance(one, float) and not kind.is_floating_point else one for one in flat]
    return on_host(whole).reshape(np.shape(value))


def _host_divide(left: Host, right: Host) -> Any:
    fraction = any(isinstance(one, float) for one in (*np.ravel(left), *np.ravel(right)))
    return left / right if fraction else left // right


def _host_slice(value: Host, starts: Host, ends: Host, axes: Any = None, steps: Any = None) -> Host:
    step = 1 if steps is None else integers(steps)[0]
    return np.asarray(value)[_bounded(integers(starts)[0], integers(ends)[0], step)]


def _host_full(shape: Host, value: Any) -> Host | None:
    """A list of one whole number; anything else is data."""
    number = np.zeros(1) if value is None else np.asarray(value)
    if number.dtype.kind != "i" or np.size(shape) != 1 or integers(shape)[0] > 16:
        return None
    return np.full(integers(shape), int(number.reshape(-1)[0]), dtype=object)


HOST.update(
    Add=lambda a, b: np.asarray(a) + b,
    Sub=lambda a, b: np.asarray(a) - b,
    Mul=lambda a, b: np.asarray(a) * b,
    Div=lambda a, b: _host_divide(np.asarray(a), np.asarray(b)),
    Mod=lambda a, b, **_: np.asarray(a) % b,
    Neg=lambda a: -np.asarray(a),
    Min=lambda *values: np.minimum.reduce([np.asarray(one, dtype=object) for one in values]),
    Max=lambda *values: np.maximum.reduce([np.asarray(one, dtype=object) for one in values]),
    Equal=lambda a, b: np.asarray(a) == b,
    Greater=lambda a, b: np.asarray(a) > b,
    Less=lambda a, b: np.asarray(a) < b,
    Where=lambda condition, yes, no: np.where(np.asarray(condition).astype(bool), yes, no),
    Floor=lambda a: np.vectorize(math.floor, otypes=[object])(a),
    Ceil=lambda a: np.vectorize(math.ceil, otypes=[object])(a),
    Cast=_host_cast,
    Identity=lambda value: value,
    Concat=lambda *values, axis=0: np.concatenate([np.reshape(one, -1).astype(object) for one in values]),
    Gather=lambda value, indices, axis=0: np.asarray(value)[np.asarray(indices).astype(int)],
    Slice=_host_slice,
    Squeeze=lambda value, axes=None: np.asarray(value).reshape(() if np.asarray(value).size == 1 else -1),
    Unsqueeze=lambda value, axes: np.asarray(value).reshape(-1) if np.ndim(value) == 0 else None,
    Reshape=lambda value, shape, **_: np.asarray(value).reshape(-1) if np.size(shape) == 1 else None,
    ReduceProd=lambda value, axes=None, keepdims=1, **_: np.array(
        [math.prod(integers(value))], dtype=object
    ).reshape(-1 if keepdims else ()),
    Shape=lambda value, start=0, end=None: np.array(list(np.asarray(value).shape)[start:end], dtype=object),
    ConstantOfShape=lambda shape, value=None: _host_full(shape, value),
    Expand=lambda value, shape: np.broadcast_to(value, integers(shape)) if np.size(shape) == 1 else None,
)  # fmt: skip
