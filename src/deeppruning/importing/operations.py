"""ONNX operations without weights, one line each: a function of values and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deeppruning.importing import moving, placing, recurrent, resizing
from deeppruning.importing.host import HOST
from deeppruning.importing.values import (
    OPERATIONS,
    OnnxFunction,
    as_tensor,
    dtype_of,
    integers,
    on_host,
    operation,
    scalar,
)

__all__ = ["HOST", "OPERATIONS", "moving", "placing", "recurrent", "resizing", "run"]


def run(op: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """One operation on tensors, or on host values where all of them are."""
    if op in HOST and inputs and not any(isinstance(value, Tensor) or np.ndim(value) > 1 for value in inputs):
        result = HOST[op](*inputs, **attributes)
        if result is not None:
            return result
    first, *others = inputs
    return OPERATIONS[op](as_tensor(first) if isinstance(first, np.ndarray) else first, *others, **attributes)


def _pair(function: Callable[[Any, Any], Any]) -> OnnxFunction:
    """Of two values that broadcast; one on the host is a constant, or a size."""

    def apply(left: Any, right: Any, **_: Any) -> Any:
        like = left if isinstance(left, Tensor) else right
        left, right = (_operand(value, like) for value in (left, right))
        return function(left, right)

    return apply


def _operand(value: Any, like: Any) -> Any:
    """A constant as a number, or as a tensor on the device of the other operand."""
    if isinstance(value, np.ndarray):
        return scalar(value) if value.size == 1 else as_tensor(value, like)
    return value


def _divide(left: Any, right: Any) -> Any:
    """Division as in ONNX: whole numbers are cut towards zero."""
    whole = all(
        value.dtype in (torch.int32, torch.int64) if isinstance(value, Tensor) else isinstance(value, int)
        for value in (left, right)
    )
    return torch.div(left, right, rounding_mode="trunc") if whole else left / right


def _each(function: Callable[..., Any]) -> OnnxFunction:
    """An operation with one input, element by element."""
    return lambda value, **attributes: function(as_tensor(value), **attributes)


def _several(function: Callable[[Any, Any], Any]) -> OnnxFunction:
    """An operation with any number of inputs, two by two."""

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
            value
            if isinstance(value, Tensor)
            else torch.as_tensor(value, dtype=like.dtype, device=like.device)
            for value in (left, right)
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
    Acos=_each(torch.acos),
    Acosh=_each(torch.acosh),
    Asin=_each(torch.asin),
    Asinh=_each(torch.asinh),
    Atan=_each(torch.atan),
    Atanh=_each(torch.atanh),
    Ceil=_each(torch.ceil),
    Cos=_each(torch.cos),
    Cosh=_each(torch.cosh),
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
    Sinh=_each(torch.sinh),
    Softplus=_each(F.softplus),
    Softsign=_each(F.softsign),
    Sqrt=_each(torch.sqrt),
    Tan=_each(torch.tan),
    Tanh=_each(torch.tanh),
    IsNaN=_each(torch.isnan),
    MatMul=lambda left, right: torch.matmul(as_tensor(left), as_tensor(right)),
    Einsum=lambda *values, equation: torch.einsum(equation, *map(as_tensor, values)),
    PRelu=lambda value, slope: torch.where(value < 0, value * slope, value),
    Elu=lambda value, alpha=1.0: F.elu(value, alpha),
    Celu=lambda value, alpha=1.0: F.celu(value, alpha),
    Selu=lambda value, **_: F.selu(value),
    LeakyRelu=lambda value, alpha=0.01: F.leaky_relu(value, alpha),
    ThresholdedRelu=lambda value, alpha=1.0: torch.where(value > alpha, value, torch.zeros_like(value)),
    HardSigmoid=lambda value, alpha=0.2, beta=0.5: torch.clamp(value * alpha + beta, 0.0, 1.0),
    HardSwish=_each(F.hardswish),
    Gelu=lambda value, approximate="none": F.gelu(value, approximate=approximate),
    Swish=lambda value, alpha=1.0: value * torch.sigmoid(alpha * value),
    Shrink=lambda value, bias=0.0, lambd=0.5: torch.where(
        value.abs() > lambd, value - bias * torch.sign(value), torch.zeros_like(value)
    ),
    RMSNormalization=lambda value, scale, axis=-1, epsilon=1e-5, **_: _rms_norm(value, scale, axis, epsilon),
    Transpose=lambda value, perm=None: value.permute(perm or list(range(value.dim()))[::-1]),
    Concat=lambda *values, axis: torch.cat([as_tensor(value) for value in values], dim=axis),
    Where=lambda condition, yes, no: _where(condition, yes, no),
    Shape=lambda value, start=0, end=None: on_host(list(value.shape)[start:end]),
    Size=lambda value: on_host([math.prod(value.shape)]).reshape(()),
    GlobalMaxPool=lambda value: torch.amax(value, dim=tuple(range(2, value.dim())), keepdim=True),
    Trilu=lambda value, k=0, upper=1: (torch.triu if upper else torch.tril)(value, int(scalar(k))),
    CumSum=lambda value, axis, **_: torch.cumsum(value, int(scalar(axis))),
)  # fmt: skip


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """Values of one or the other, by a condition."""
    like = next((value for value in (yes, no, condition) if isinstance(value, Tensor)), None)
    yes, no = (_operand(value, like) for value in (yes, no))
    return torch.where(as_tensor(condition, like), yes, no)


def _rms_norm(value: Tensor, scale: Any, axis: int, epsilon: float) -> Any:
    dims = list(range(axis % value.dim(), value.dim()))
    normed: Tensor = value * torch.rsqrt(value.square().mean(dims, keepdim=True) + epsilon) * scale
    return normed


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
    """A reduction over axes that are attributes or an input."""

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
    ReduceLogSum=_reduction(lambda value, dims, keep: value.sum(dims, keepdim=keep).log()),
    ReduceLogSumExp=_reduction(lambda value, dims, keep: torch.logsumexp(value, dims, keepdim=keep)),
)


@operation("ReduceProd")
def reduce_prod(value: Tensor, axes: Any = None, keepdims: int = 1, **_: Any) -> Tensor:
    """Torch multiplies over one axis at a time."""
    for axis in sorted(
        axis % value.dim() for axis in (integers(axes) if axes is not None else range(value.dim()))
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
    top = torch.topk(value, int(scalar(k)), dim=axis, largest=bool(largest), sorted=bool(sorted))
    return top.values, top.indices


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
