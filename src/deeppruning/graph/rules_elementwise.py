"""What operations without channel weights do to labels: move them, carry them, tie them, drop them."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from deeppruning.graph.call import Call
from deeppruning.graph.labels import Channels, Constant, Fixed, Origin, Payload, gather, spread
from deeppruning.graph.operations import ELEMENTWISE


def is_elementwise(call: Call) -> bool:
    """Whether each output element depends on the input elements at its own position only."""
    return call.name in ELEMENTWISE or torch.Tag.pointwise in call.function.tags


def move(call: Call) -> list[Payload]:
    """Run the operation on the labels of its input, as it ran on the values."""
    payloads = [call.lookup(tensor) for tensor in call.tensors()]
    origins = [payload for payload in payloads if isinstance(payload, Origin)]
    if len(origins) == len(payloads) == 1:
        return _move_origin(call, origins[0])
    if not any(isinstance(payload, Channels) for payload in payloads):
        same = all(isinstance(payload, Constant) for payload in payloads)
        fixed = next((payload for payload in payloads if isinstance(payload, Fixed)), None)
        reason = fixed.reason if fixed else f"{call.place} rearranges parameters"
        return [Constant() if same else Fixed(reason)] * len(call.outputs)

    counter = iter(range(len(payloads)))

    def labels_of(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not value.is_floating_point():  # positions for an index operation, not data
            return value.cpu()
        return spread(call.lookup(value), value, call.table, (*call.owner, "fixed", next(counter)))

    moved = _run_on(call, labels_of)
    return [
        gather(labels, call.table, (*call.owner, "constant", i), call.layer) for i, labels in enumerate(moved)
    ]


def _move_origin(call: Call, origin: Origin) -> list[Payload]:
    moved = _run_on(call, lambda value: origin.flat() if isinstance(value, Tensor) else value)
    shape = tuple(moved[0].shape)
    if len(moved) == 1 and shape == origin.shape and torch.equal(moved[0], origin.flat()):
        return [origin]
    return [Origin(origin.name, origin.shape, labels) for labels in moved]


def _run_on(call: Call, replace: Any) -> list[Tensor]:
    args = {name: tree_map(replace, value) for name, value in call.args.items()}
    if "value" in args:  # what a pad fills in is a constant, whatever its number
        args["value"] = 0.0
    for extra in ("memory_format", "dtype", "layout", "device", "pin_memory"):
        args.pop(extra, None)
    result = call.function(**args)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def elementwise(call: Call) -> list[Payload]:
    """Tie the channels that meet at the same position; parameters that meet them are cut along."""
    shape = call.outputs[0].shape
    tensors = list(call.tensors())
    met = [(tensor, call.lookup(tensor)) for tensor in tensors]
    carriers = [(tensor, payload) for tensor, payload in met if isinstance(payload, Channels)]
    if not carriers:
        return [_without_channels(call, met)] * len(call.outputs)
    if call.in_place and not isinstance(met[0][1], Channels):
        # The target may be a window on a larger tensor whose labels would not hear of this.
        return call.freeze_inputs(f"{call.place} writes channels into a tensor made elsewhere")
    wide = [
        (tensor, payload, payload.axis + len(shape) - tensor.ndim)
        for tensor, payload in carriers
        if tensor.shape[payload.axis] == shape[payload.axis + len(shape) - tensor.ndim]
    ]
    for tensor, payload in carriers:
        if all(tensor is not other for other, _, _ in wide):
            call.table.freeze(payload.ids, f"a single channel is spread over others by {call.place}")
    axes = {axis for _, _, axis in wide}
    if len(axes) != 1:
        return call.freeze_inputs(f"{call.place} combines channels along different axes")
    axis = axes.pop()
    ids = wide[0][1].ids
    for _, payload, _ in wide[1:]:
        call.table.tie(ids, payload.ids)
    for tensor, other in met:
        dimension = axis - (len(shape) - tensor.ndim)
        if not isinstance(other, Channels) and dimension >= 0:
            call.bind_along(tensor, dimension, ids)
    return [Channels(axis, ids)] * len(call.outputs)


def _without_channels(call: Call, met: list[tuple[Tensor, Payload]]) -> Payload:
    payloads = [payload for tensor, payload in met if tensor.ndim]
    if not payloads or all(isinstance(payload, Constant) for payload in payloads):
        scalar_only = not payloads and any(isinstance(payload, Fixed) for _, payload in met)
        return Fixed("a number computed in the forward code") if scalar_only else Constant()
    origins = [payload for payload in payloads if isinstance(payload, Origin)]
    if len(origins) == len(payloads) == 1 and call.outputs[0].shape == met[0][0].shape:
        return origins[0]
    fixed = next((payload for payload in payloads if isinstance(payload, Fixed)), None)
    return fixed or Fixed(f"{call.place} computes with whole parameters")


def spatial(call: Call) -> list[Payload]:
    """Pooling and resampling: each channel's map by itself."""
    payload = call.lookup(next(call.tensors()))
    if not isinstance(payload, Channels):
        return [payload if isinstance(payload, (Fixed, Constant)) else Fixed(call.place)] * len(call.outputs)
    rank = next((int(digit) for digit in "123" if f"{digit}d" in call.name), 2)
    if payload.axis >= next(call.tensors()).ndim - rank:
        return call.freeze_inputs(f"{call.place} mixes channels")
    return [payload] * len(call.outputs)


def along(call: Call) -> list[Payload]:
    """Reductions and softmax: fine along other dimensions than the channels', else frozen."""
    tensor = next(call.tensors())
    payload = call.lookup(tensor)
    if not isinstance(payload, Channels):
        return [payload if isinstance(payload, (Fixed, Constant)) else Fixed(call.place)] * len(call.outputs)
    given = call.args.get("dim")
    if given is None or len(list(call.tensors())) > 1:
        return call.freeze_inputs(f"{call.place} mixes channels")
    listed = [given] if isinstance(given, int) else list(given)
    dims = {dim % tensor.ndim for dim in listed} or set(range(tensor.ndim))
    if payload.axis in dims:
        return call.freeze_inputs(f"{call.place} mixes channels")
    dropped = call.outputs[0].ndim < tensor.ndim
    axis = payload.axis - sum(dim < payload.axis for dim in dims) if dropped else payload.axis
    return [Channels(axis, payload.ids)] * len(call.outputs)
