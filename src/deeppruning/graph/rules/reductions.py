"""What reductions and softmax do to labels: harmless along other dimensions than that of the channels.

A norm across channels takes statistics of some channels and subtracts them from those same channels, or
divides these by them. Masking then means what it means for layer norm: removed channels do not take part in
the statistics either. In any other use (multiplied with the channels, compared with them, read by a layer,
added to other channels, returned) a mean over fewer channels is a different number: the channels it was taken
of are frozen.
"""

import math
from dataclasses import replace

import numpy as np
from torch import Tensor

from deeppruning.graph.payloads import Channels, Constant, Fixed, Origin, Payload, Statistic
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.operations import REARRANGING, VIEWS
from deeppruning.graph.rules.weights import reduction

MEANS = ("mean",)
SPREADS = ("var", "std", "var_mean", "std_mean")
LENGTHS = ("linalg_vector_norm", "norm")
REDUCING = (*MEANS, *SPREADS, *LENGTHS, "sum")
# Operations that norms apply to their statistics.
ARITHMETIC = (
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "pow",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "neg",
    "abs",
)
LIMITS = ("clamp", "clamp_min", "maximum", "_to_copy")


def over_channels(call: Call, tensor: Tensor, payload: Channels, dims: set[int]) -> list[Payload]:
    """A reduction whose dimensions include the channels'."""
    reason = f"{call.place} mixes channels"
    if call.name == "sum" or (call.name in LENGTHS and _order(call) >= 0):
        # Channels at zero add nothing to a sum or a norm.
        return [Fixed(f"{call.place} adds up channels")] * len(call.outputs)
    if call.name in MEANS or (call.name in SPREADS and _defined_for_one(call, tensor, payload, dims)):
        return [Statistic(payload.dimension, payload.atoms, reason, frozenset({call.site}))] * len(
            call.outputs
        )
    return call.freeze_inputs(reason)


def _order(call: Call) -> float:
    """The order of a norm."""
    given = call.args.get("ord", call.args.get("p"))
    return 2.0 if given is None else float(given)


def _defined_for_one(call: Call, tensor: Tensor, payload: Channels, dims: set[int]) -> bool:
    """Whether the spread of a single channel is a number: an unbiased one needs two values at least."""
    given = call.args.get("correction", 1.0 if call.args.get("unbiased", True) else 0.0)
    values = math.prod(tensor.shape[dim] for dim in dims if dim != payload.dimension)
    return values > (1.0 if given is None else float(given))


def met_by(call: Call) -> list[tuple[Tensor, Payload]]:
    """The arguments of an element-wise operation with their payloads, without statistics of its channels.

    Statistics of other channels freeze those channels.
    """
    tensors = list(call.tensors())
    if not any(isinstance(call.peek(tensor), Statistic) for tensor in tensors):
        return [(tensor, call.lookup(tensor)) for tensor in tensors]
    shape = call.outputs[0].shape
    carriers = [(tensor, p) for tensor in tensors if isinstance(p := call.peek(tensor), Channels)]
    met: list[tuple[Tensor, Payload]] = []
    for tensor in tensors:
        payload = call.peek(tensor)
        if isinstance(payload, Statistic) and any(
            _norms(tensor, payload, *each, len(shape)) and _takes_away(call, tensor, payload)
            for each in carriers
        ):
            call.normed |= payload.sites
            continue
        met.append((tensor, call.lookup(tensor)))
    return met


def _norms(tensor: Tensor, statistic: Statistic, other: Tensor, channels: Channels, rank: int) -> bool:
    """Whether a statistic is broadcast over the channels that it was taken of."""
    dimension = channels.dimension + rank - other.ndim - (rank - tensor.ndim)
    alone = dimension < 0 or tensor.shape[dimension] == 1
    wide = other.shape[channels.dimension] == len(channels.atoms)
    return alone and wide and np.array_equal(statistic.atoms, channels.atoms)


def _takes_away(call: Call, tensor: Tensor, statistic: Statistic) -> bool:
    """Whether an operation subtracts a statistic from channels, or divides them by it."""
    if call.name in ("mul", "add"):
        return statistic.turned
    divisor = call.args.get("other")
    return call.name in ("sub", "rsub") or (call.name == "div" and (divisor is tensor or statistic.turned))


def _turns(call: Call) -> bool:
    """Whether an operation makes of a statistic its inverse or negative, to multiply with or to add."""
    if call.name in ("rsqrt", "reciprocal", "neg", "rsub"):
        return True
    if call.name == "pow":
        exponent = call.args.get("exponent")
        return isinstance(exponent, (int, float)) and exponent < 0
    sides = [call.args.get("self"), call.args.get("other")]
    taken = [isinstance(side, Tensor) and isinstance(call.peek(side), Statistic) for side in sides]
    return call.name in ("div", "sub") and taken == [False, True]


def carried(call: Call) -> Statistic | None:
    """The statistic that an operation on statistics alone gives (the root of a variance), if it is one."""
    statistic: Statistic | None = None
    if call.name not in (*REDUCING, *ARITHMETIC, *LIMITS, *VIEWS, *REARRANGING):
        return None  # a gate (a sigmoid of the mean) is no norm
    for tensor in call.tensors():
        payload = call.peek(tensor)
        if isinstance(payload, Statistic):
            if statistic is not None and not np.array_equal(statistic.atoms, payload.atoms):
                return None
            sites = payload.sites | (statistic.sites if statistic is not None else frozenset())
            turned = payload.turned or (statistic is not None and statistic.turned) or _turns(call)
            statistic = replace(payload, sites=sites, turned=turned)
        elif isinstance(payload, Channels) or (tensor.numel() > 1 and not isinstance(payload, Constant)):
            return None
    return statistic


def along(call: Call) -> list[Payload]:
    """Reductions and softmax: fine along other dimensions than the channels', else frozen."""
    tensor = next(call.tensors())
    statistic = carried(call)
    if statistic is not None:
        return [statistic] * len(call.outputs)
    payload = call.lookup(tensor)
    dims = _reduced(call, tensor)
    if len(list(call.tensors())) > 1:
        return call.freeze_inputs(f"{call.place} mixes channels")
    if isinstance(payload, Origin):
        return reduction(call, tensor, payload, dims)
    if not isinstance(payload, Channels):
        return [payload] * len(call.outputs)
    if payload.dimension in dims:
        return over_channels(call, tensor, payload, dims)
    dropped = call.outputs[0].ndim < tensor.ndim
    dimension = (
        payload.dimension - sum(dim < payload.dimension for dim in dims) if dropped else payload.dimension
    )
    return [Channels(dimension, payload.atoms)] * len(call.outputs)


def _reduced(call: Call, tensor: Tensor) -> set[int]:
    """The dimensions along which positions are brought together."""
    given = call.args.get("dim")
    listed = [given] if isinstance(given, int) else list(given or ())
    return {dim % tensor.ndim for dim in listed} or set(range(tensor.ndim))
