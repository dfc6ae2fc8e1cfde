"""What computing with parameters alone does to labels: weights masked, normed or standardised on the fly.

The result keeps the payload (`Origin`) of the parameter that it has its shape from: slicing that parameter
slices the result. The other parameters are tied to it dimension by dimension. A dimension along which
positions are mixed (the mean of each filter) is frozen, because a cut there would change what stays.
"""

import numpy as np
from torch import Tensor

from deeppruning.graph.atoms import Atoms
from deeppruning.graph.payloads import Constant, Fixed, Origin, Payload
from deeppruning.graph.rules.call import Call


def combine(call: Call, met: list[tuple[Tensor, Payload]]) -> Payload:
    """An element-wise operation on parameters, where no activation takes part."""
    shape = call.outputs[0].shape
    wide = [(tensor, payload) for tensor, payload in met if tensor.numel() > 1]
    origins = [(tensor, payload) for tensor, payload in wide if isinstance(payload, Origin)]
    whole = [payload for tensor, payload in origins if tensor.shape == shape]
    if not whole:
        return _not_followed(call, wide)
    # A mask may come before the weight; the layer is called after the weight.
    leader = min(
        whole,
        key=lambda origin: (len(origin.shape) < len(shape), not _is_weight(origin), not origin.unmoved),
    )
    call.touch(payload for _, payload in origins)
    for tensor, payload in wide:
        for dimension in range(-tensor.ndim, 0):
            if tensor.shape[dimension] == 1 or payload is leader or _alike(payload, leader, call):
                continue
            if isinstance(payload, Origin):
                if not payload.repeats(dimension):
                    _join(call, leader, payload, dimension)
            elif isinstance(payload, Fixed):
                _freeze_along(call, leader, dimension, payload.reason)
    return leader


def _not_followed(call: Call, wide: list[tuple[Tensor, Payload]]) -> Payload:
    """Freeze what meets in a way that is not followed."""
    fixed = next((payload for _, payload in wide if isinstance(payload, Fixed)), None)
    if not any(isinstance(payload, Origin) for _, payload in wide):
        return fixed or Constant()
    return call.freeze_inputs(fixed.reason if fixed else f"{call.place} computes with whole parameters")[0]


def _is_weight(origin: Origin) -> bool:
    """Whether a parameter is a layer's weight, by its name."""
    return origin.name.rpartition(".")[2].startswith(("weight", "original"))


def _alike(payload: Payload, leader: Origin, call: Call) -> bool:
    """Whether two parameters of one shape have the same window; then they are tied."""
    if not isinstance(payload, Origin) or payload.shape != leader.shape or payload.window != leader.window:
        return False
    if payload.index is not leader.index:
        return False
    for own in payload.wide_dimensions() if payload.name != leader.name else ():
        call.table.tie(call.parameter_atoms(payload, own), call.parameter_atoms(leader, own))
    return True


def _join(call: Call, leader: Origin, other: Origin, dimension: int) -> None:
    """Tie two parameters that meet along a dimension, or pin both where it is unclear how."""
    own, met = _atoms_along(call, leader, dimension), _atoms_along(call, other, dimension)
    if own is not None and met is not None:
        call.table.tie(own, met)
        return
    reason = f"{call.place} combines {other.name} with {leader.name} in a way that is not followed"
    for origin in (leader, other):
        call.table.pin(origin.name, reason)


def _atoms_along(call: Call, origin: Origin, dimension: int) -> Atoms | None:
    """The atoms of a parameter along a dimension of the tensor (from the end), None if some are absent."""
    matched = origin.own_dimension(len(origin.viewed_shape()) + dimension)
    if matched is None:
        return None
    own, positions = matched
    covered = len(np.unique(positions)) == origin.shape[own]
    return call.parameter_atoms(origin, own)[positions] if covered else None


def _freeze_along(call: Call, origin: Origin, dimension: int, reason: str) -> None:
    """Freeze the atoms of a parameter along one of its dimensions."""
    matched = origin.own_dimension(len(origin.viewed_shape()) + dimension)
    if matched is None:
        call.table.pin(origin.name, reason)
    else:
        call.table.freeze(call.parameter_atoms(origin, matched[0]), reason)


def mix(call: Call, origin: Origin, dims: set[int]) -> None:
    """Positions along these dimensions are mixed: freeze own dimensions that no other dimension shows."""
    rank = len(origin.viewed_shape())
    shown = {
        matched[0]
        for dimension in range(rank)
        if dimension not in dims and (matched := origin.own_dimension(dimension)) is not None
    }
    call.touch([origin])
    for own in origin.wide_dimensions():
        if own not in shown:
            reason = f"{call.place} takes {origin.name} together along dimension {own}"
            call.table.freeze(call.parameter_atoms(origin, own), reason)


def reduction(call: Call, tensor: Tensor, origin: Origin, dims: set[int]) -> list[Payload]:
    """A mean, norm or softmax over some dimensions of a parameter: free along the others."""
    mix(call, origin, dims)
    narrowed = origin.narrowed(dims)
    made: list[Payload] = []
    for output in call.outputs:
        if output.shape == tensor.shape:
            made.append(origin)
        elif output.numel() > 1:
            made.append(narrowed.reshaped(output.shape))
        else:
            made.append(Fixed(f"{call.place} sums up {origin.name}"))
    return made


def normalised(call: Call, origin: Origin, channel: int | None, dims: set[int]) -> list[Payload]:
    """A norm layer applied to a weight (weight standardisation); `channel` is what its parameters index."""
    rest: list[Payload] = [Constant()] * (len(call.outputs) - 1)
    extras = [
        tensor for name, tensor in call.named_tensors() if name not in ("input", "self") and tensor.numel()
    ]
    mix(call, origin, dims)
    atoms = _atoms_along(call, origin, channel - len(origin.viewed_shape())) if channel is not None else None
    for tensor in extras:
        if atoms is None:
            return call.freeze_inputs(f"{call.place} scales a computed weight in a way that is not followed")
        call.bind_along(tensor, 0, atoms)
    return [origin, *rest]


def weight_norm(call: Call) -> list[Payload]:
    """Torch's own weight norm: the length of each filter is a parameter of its own."""
    direction, length = call.payload("v"), call.payload("g")
    dimension = call.args.get("dim", 0)
    rest: list[Payload] = [Constant()] * (len(call.outputs) - 1)
    if not isinstance(direction, Origin) or not isinstance(length, Origin):
        return call.freeze_inputs(f"{call.place} norms weights that are computed")
    rank = len(direction.viewed_shape())
    mix(call, direction, set(range(rank)) - {dimension})
    _join(call, direction, length, dimension - rank)
    return [direction, *rest]
