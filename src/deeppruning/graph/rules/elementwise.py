"""What operations without channel weights do to labels: move, carry, tie or drop them."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeppruning.graph.payloads import Channels, Constant, Fixed, Origin, Payload, gather, spread
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.operations import ELEMENTWISE, PICKING, REARRANGING, VIEWS
from deeppruning.graph.rules.reductions import carried, met_by
from deeppruning.graph.rules.weights import combine, mix

POSITION_ARGUMENTS = ("index", "indices")  # hold positions for a look-up, not data


def is_elementwise(call: Call) -> bool:
    """Whether each output element depends only on the input elements at its own position."""
    return call.name in ELEMENTWISE or torch.Tag.pointwise in call.function.tags


def same(call: Call) -> list[Payload]:
    """A copy or another handle of the same tensor."""
    return [call.peek(next(call.tensors()))]


def likeness(call: Call) -> list[Payload]:
    """Constants as wide as another tensor: cut along with it."""
    payload = call.lookup(next(call.tensors()))
    wide = isinstance(payload, Channels) and len(payload.atoms) > 1
    return [payload if wide else Constant()] * len(call.outputs)


def positions(call: Call) -> list[Payload]:
    """Numbers that count positions: whatever they are joined with must keep its size."""
    return [Fixed(f"{call.place} counts positions")] * len(call.outputs)


def as_strided(call: Call) -> list[Payload]:
    """Used by torch to change the memory format after pooling; any other use is not understood."""
    tensor, made = next(call.tensors()), call.outputs[0]
    payload = call.lookup(tensor)
    unchanged = tensor.shape == made.shape and all(
        size == 1 or before == after
        for size, before, after in zip(tensor.shape, tensor.stride(), made.stride(), strict=True)
    )
    if unchanged and tensor.storage_offset() == made.storage_offset():
        return [payload]
    return call.freeze_inputs(f"{call.place} is not understood")


def glu(call: Call) -> list[Payload]:
    """GLU: the second half of the channels gates the first, so each pair goes together."""
    tensor = next(call.tensors())
    payload = call.lookup(tensor)
    if not isinstance(payload, Channels):
        return call.freeze_inputs(f"{call.place} is not understood")
    if call.args.get("dim", -1) % tensor.ndim != payload.dimension:
        return [payload]
    first, second = np.split(payload.atoms, 2)
    call.table.tie(first, second)
    return [Channels(payload.dimension, first)]


def move(call: Call) -> list[Payload]:
    """Run the operation on the labels of its input, as it ran on the values."""
    statistic = carried(call)
    if statistic is not None:
        return [statistic] * len(call.outputs)
    payloads = [call.lookup(tensor) for tensor in call.tensors()]
    if call.name == "expand" and isinstance(payloads[0], Fixed):
        return [Constant()]  # what is repeated takes any size
    origins = [payload for payload in payloads if isinstance(payload, Origin)]
    if len(origins) == len(payloads) == 1:
        return _move_origin(call, origins[0])
    if call.name == "cat" and len(origins) == len(payloads):
        # Statistics and scales of branches, one number per channel, concatenated like the branches.
        joined = _joined(call, [call.loose(tensor) for tensor in call.tensors()])
        return [joined] if joined else call.freeze_inputs(f"{call.place} rearranges parameters")
    data = [call.lookup(tensor) for name, tensor in call.named_tensors() if name not in POSITION_ARGUMENTS]
    if call.table.whole_heads and len(data) == 1 and isinstance(data[0], Origin):
        return _move_origin(call, data[0])  # biases of attention, looked up by the distance of two positions
    if not any(isinstance(payload, Channels) for payload in data):
        if all(isinstance(payload, Constant) for payload in data):
            return [Constant()] * len(call.outputs)
        fixed = next((payload for payload in payloads if isinstance(payload, Fixed)), None)
        return call.freeze_inputs(fixed.reason if fixed else f"{call.place} rearranges parameters")
    looked_up = (call.lookup(tensor) for name, tensor in call.named_tensors() if name in POSITION_ARGUMENTS)
    if any(isinstance(payload, Channels) for payload in looked_up):
        return call.freeze_inputs(f"{call.place} looks up positions that the network computes")
    joined = _joined(call, data)
    return [joined] if joined is not None else _move_labels(call)


def _joined(call: Call, payloads: list[Payload]) -> Payload | None:
    """A shortcut for the most common move: channels that are concatenated."""
    if call.name != "cat" or not all(isinstance(payload, Channels) for payload in payloads):
        return None
    channels = [payload for payload in payloads if isinstance(payload, Channels)]
    dimension = call.args.get("dim", 0) % call.outputs[0].ndim
    if any(payload.dimension != dimension for payload in channels):
        return None
    return Channels(dimension, np.concatenate([payload.atoms for payload in channels]))


def _move_labels(call: Call) -> list[Payload]:
    """Move the labels of channels as the operation moves the values."""
    counter = itertools.count()

    def labels_of(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if name in POSITION_ARGUMENTS:
            return value.cpu()
        payload = call.lookup(value)
        if isinstance(payload, Origin):
            call.table.pin(payload.name, f"{call.place} joins it with channels")
        return spread(payload, value, call.table, (*call.site, "fixed", next(counter)))

    moved = _run_on(call, labels_of)
    return [gather(labels, call.table, (*call.site, i), call.layer) for i, labels in enumerate(moved)]


def _move_origin(call: Call, origin: Origin) -> list[Payload]:
    """Move the window on a parameter as the operation moves its values."""
    made = _moved_origins(call, origin)
    if call.name in PICKING:
        _freeze_lost(call, origin, made)
    return [*made]


def _moved_origins(call: Call, origin: Origin) -> list[Origin]:
    """The windows on a parameter that the operation's outputs are."""
    if call.name not in REARRANGING:
        call.touch([origin])
    if call.name in VIEWS:
        return [origin.reshaped(tuple(call.outputs[0].shape))]
    if call.name == "constant_pad_nd" and _pads_lone_positions(call, origin):
        return [origin.repeated(tuple(call.outputs[0].shape))]  # zeros beside it are no elements of it
    if origin.index is None and call.function.is_view:
        ghosts = _run_on(call, lambda _, value: origin.ghost() if isinstance(value, Tensor) else value)
        return [origin.seen_as(ghost) for ghost in ghosts]
    moved = _run_on(
        call, lambda name, value: origin.flat() if _is_data(name, value) else _on_processor(value)
    )
    return [Origin(origin.name, origin.shape, index=labels) for labels in moved]


def _is_data(name: str, value: Any) -> bool:
    """Whether an argument is what is moved, rather than positions to move it by."""
    return isinstance(value, Tensor) and name not in POSITION_ARGUMENTS


def _on_processor(value: Any) -> Any:
    """Labels are on the processor, and so must be what they are looked up by."""
    return value.cpu() if isinstance(value, Tensor) else value


def _pads_lone_positions(call: Call, origin: Origin) -> bool:
    """Whether a pad widens only dimensions of one position, such as those of a 1x1 kernel."""
    before, after = origin.viewed_shape(), tuple(call.outputs[0].shape)
    return all(size in (1, made) for size, made in zip(before, after, strict=True))


def _freeze_lost(call: Call, origin: Origin, made: list[Origin]) -> None:
    """A dimension that disappears because one position is picked must keep all positions."""
    for part in made:
        rank = len(part.viewed_shape())
        seen = {matched[0] for d in range(rank) if (matched := part.own_dimension(d)) is not None}
        for own in origin.wide_dimensions():
            if own not in seen:
                call.table.freeze(call.parameter_atoms(origin, own), f"{call.place} picks from {origin.name}")


def _run_on(call: Call, replace: Callable[[str, Any], Any]) -> list[Tensor]:
    """Run the operation again with labels in place of values."""

    def replaced(name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [replace(name, item) for item in value]
        return replace(name, value)

    args = {name: replaced(name, value) for name, value in call.args.items()}
    if call.name in VIEWS:  # labels have their own memory layout, which a view may not accept
        return [next(x for x in args.values() if isinstance(x, Tensor)).reshape(call.outputs[0].shape)]
    if "value" in args:  # padding is a constant, whatever its value
        args["value"] = 0.0
    for extra in ("memory_format", "dtype", "layout", "device", "pin_memory"):
        args.pop(extra, None)
    result = call.function(**args)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def elementwise(call: Call) -> list[Payload]:
    """Tie the channels that meet at the same position; parameters that meet them are cut along."""
    shape = call.outputs[0].shape
    statistic = carried(call)
    if statistic is not None:
        return [statistic] * len(call.outputs)
    met = met_by(call)
    if call.in_place and isinstance(met[0][1], Origin):
        met = [(tensor, call.loose(tensor)) for tensor in call.tensors()]
    carriers = [(tensor, payload) for tensor, payload in met if isinstance(payload, Channels)]
    if not carriers:
        return [_without_channels(call, met)] * len(call.outputs)
    if call.in_place and not isinstance(met[0][1], Channels) and not _fills(call, carriers):
        # The target may be a window on a larger tensor, which would keep its old labels.
        return call.freeze_inputs(f"{call.place} writes channels into a tensor made elsewhere")
    wide = [
        (tensor, payload, payload.dimension + len(shape) - tensor.ndim)
        for tensor, payload in carriers
        if tensor.shape[payload.dimension] == shape[payload.dimension + len(shape) - tensor.ndim]
    ]
    for tensor, payload in carriers:
        if all(tensor is not other for other, _, _ in wide):
            call.table.freeze(payload.atoms, f"a single channel is spread over others by {call.place}")
    dimensions = {dimension for _, _, dimension in wide}
    if len(dimensions) != 1:
        return call.freeze_inputs(f"{call.place} combines channels along different axes")
    dimension = dimensions.pop()
    atoms = wide[0][1].atoms
    for _, payload, _ in wide[1:]:
        call.table.tie(atoms, payload.atoms)
    for tensor, other in met:
        own = dimension - (len(shape) - tensor.ndim)
        if not isinstance(other, Channels) and own >= 0:
            call.bind_along(tensor, own, atoms)
    made = Channels(dimension, atoms)
    return [made if output.shape == shape else Constant() for output in call.outputs]


def _fills(call: Call, carriers: list[tuple[Tensor, Channels]]) -> bool:
    """Whether channels are copied into a blank tensor with room for all of them at their positions.

    The surrounding tensor then carries them, as in circular padding.
    """
    target = next(call.tensors())
    if call.name != "copy" or len(carriers) != 1 or not isinstance(call.lookup(target), Constant):
        return False
    (source, channels), base = carriers[0], target if target._base is None else target._base
    same_rank = source.ndim == target.ndim == base.ndim
    return same_rank and base.shape[channels.dimension] == source.shape[channels.dimension]


def _without_channels(call: Call, met: list[tuple[Tensor, Payload]]) -> Payload:
    """The payload of a result of constants and parameters alone."""
    payloads = [payload for tensor, payload in met if tensor.ndim]
    if not payloads or all(isinstance(payload, Constant) for payload in payloads):
        scalar_only = not payloads and any(isinstance(payload, Fixed) for _, payload in met)
        return Fixed("a number computed in the forward code") if scalar_only else Constant()
    if any(isinstance(payload, Origin) for payload in payloads):
        return combine(call, met)
    return next(payload for payload in payloads if isinstance(payload, Fixed))


def sampled(call: Call) -> list[Payload]:
    """Each map sampled at places that the network computes, the same ones for all maps (`grid_sample`)."""
    maps, *places = call.tensors()
    payload = call.lookup(maps)
    if not isinstance(payload, Channels):
        return call.freeze_inputs(payload.reason if isinstance(payload, Fixed) else _unknown(call))
    if payload.dimension != 1:
        return call.freeze_inputs(f"{call.place} mixes channels")
    for place in places:
        coordinates = call.lookup(place)
        if isinstance(coordinates, Channels):
            call.table.freeze(coordinates.atoms, f"{call.place} reads coordinates from it")
        elif isinstance(coordinates, Origin):
            call.table.pin(coordinates.name, f"{call.place} reads coordinates from it")
    return [payload]


def unpooled(call: Call) -> list[Payload]:
    """Each map spread to where its maxima were: the channels of the values are those of the places."""
    maps, places = (call.lookup(tensor) for tensor in call.tensors())
    if (
        not (isinstance(maps, Channels) and isinstance(places, Channels))
        or maps.dimension != places.dimension
    ):
        return call.freeze_inputs(_unknown(call))
    if maps.dimension >= next(call.tensors()).ndim - (3 if call.name.endswith("3d") else 2):
        return call.freeze_inputs(f"{call.place} mixes channels")
    call.table.tie(maps.atoms, places.atoms)
    return [maps]


def _unknown(call: Call) -> str:
    """The reason for channels that are frozen because a rule is missing."""
    return f"{call.place} is not understood"


def spatial(call: Call) -> list[Payload]:
    """Pooling and resampling: each channel's map separately."""
    payload = call.lookup(next(call.tensors()))
    rank = next((int(digit) for digit in "123" if f"{digit}d" in call.name), 2)
    if isinstance(payload, Origin):  # position embeddings brought to another size
        places = set(range(len(payload.viewed_shape())))
        places = {place for place in places if place >= len(places) - rank}
        mix(call, payload, places)
        return [payload.narrowed(places).repeated(tuple(output.shape)) for output in call.outputs]
    if not isinstance(payload, Channels):
        return [payload] * len(call.outputs)
    if payload.dimension >= next(call.tensors()).ndim - rank:
        return call.freeze_inputs(f"{call.place} mixes channels")
    return [payload] * len(call.outputs)
