"""What layers with weights do to labels: read their input's channels and issue their own.

A product of matrices is a linear layer where one side is a parameter; an einsum of an activation and a
parameter arrives here as such a product, between views.
"""

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from deeppruning.graph.atoms import Atoms, AtomTable
from deeppruning.graph.payloads import Channels, Constant, Fixed, Origin, Payload
from deeppruning.graph.rules.attention import product_of_activations
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.weights import normalised

LAYERS = (nn.modules.conv._ConvNd, nn.Linear)


def convolution(call: Call) -> list[Payload]:
    """Any convolution: 1-D to 3-D, dilated, transposed, grouped."""
    weight = call.unmoved("weight")
    if weight is None:
        carried = _same_for_each(call)
        return (
            [carried]
            if carried
            else _computed(call, f"{call.place} computes its weights in the forward code")
        )
    groups, transposed = call.args["groups"], call.args["transposed"]
    incoming = read_along(call, call.payload("input"), 1)
    input_dim, output_dim = (0, 1) if transposed else (1, 0)
    tensor = call.args["input"]
    if groups > 1:
        atoms = _grouped(call, weight, incoming, groups, transposed)
    else:
        read_input(call, weight.name, input_dim, incoming, tensor.shape[1])
        atoms = own_filters(call, weight, output_dim)
    if isinstance(call.args.get("bias"), Tensor):
        call.bind_along(call.args["bias"], 0, atoms)
    return [Channels(1, atoms)]


def _same_for_each(call: Call) -> Channels | None:
    """The channels of a convolution that applies one repeated filter to each of them (blur pooling)."""
    incoming, filters = call.payload("input"), call.payload("weight")
    count = call.args["input"].shape[1]
    alone = call.args["groups"] == count == call.outputs[0].shape[1] and not call.args["transposed"]
    if not alone or isinstance(call.args.get("bias"), Tensor):
        return None
    repeated = isinstance(filters, Origin) and filters.repeats(0)
    return incoming if repeated and isinstance(incoming, Channels) and incoming.dimension == 1 else None


def _computed(call: Call, reason: str) -> list[Payload]:
    """A convolution that is not followed: its filters are frozen and listed with the reason."""
    call.freeze_inputs(reason)
    output = call.outputs[0]
    kernel = tuple(call.args["weight"].shape[2:])
    layer = call.layer or call.place
    site = (*call.site, output.shape[1])
    own = call.table.issue(site, output.shape[1], kind="conv", layer=layer, kernel=kernel)
    call.table.freeze(own, reason)
    return [Fixed(reason)]


def _layer_of(call: Call, weight: Origin) -> str:
    """The layer of a weight; weights that are computed have other names (`weight_v`, `original1`)."""
    inside = call.layer and weight.name.startswith(f"{call.layer}.")
    if inside and isinstance(call.module, LAYERS):
        return call.layer
    return weight.name.removesuffix(".weight")


def own_filters(call: Call, weight: Origin, dimension: int, kind: str = "conv") -> Atoms:
    """The atoms of a layer's own outputs, bound to the dimension of its weight that makes them."""
    layer = _layer_of(call, weight)
    atoms = call.table.issue(
        (weight.name, dimension), weight.shape[dimension], kind=kind, layer=layer, kernel=weight.shape[2:]
    )
    call.table.bind(weight.name, dimension, atoms)
    return atoms


def read_input(call: Call, name: str, dimension: int, incoming: Payload | None, size: int) -> None:
    """A layer reads its input: the slices of its weight belong to the channels that come in."""
    if isinstance(incoming, Channels):
        call.table.bind(name, dimension, incoming.atoms)
        return
    reason = incoming.reason if isinstance(incoming, Fixed) else f"{call.place} reads constants"
    fixed = call.table.issue((name, dimension, "fixed"), size, kind="fixed", layer=name)
    call.table.freeze(fixed, reason)
    call.table.bind(name, dimension, fixed)


def read_along(call: Call, incoming: Payload | None, dimension: int) -> Payload | None:
    """What a layer reads along the dimension it sums over; channels along any other dimension are frozen.

    The layer's own filters stay free.
    """
    if not isinstance(incoming, Channels) or incoming.dimension == dimension:
        return incoming
    reason = f"{call.place} reads channels along another axis"
    call.table.freeze(incoming.atoms, reason)
    return Fixed(reason)


def _grouped(call: Call, weight: Origin, incoming: Payload | None, groups: int, transposed: bool) -> Atoms:
    """Grouped convolution: whole groups go, or the same positions in every group, whichever is finer."""
    per_in = call.args["input"].shape[1] // groups
    per_out = weight.shape[1] if transposed else weight.shape[0] // groups
    # One channel a group on either side leaves no positions to choose from.
    by_group = groups >= max(per_in, per_out) or min(per_in, per_out) == 1
    inward = incoming.atoms if isinstance(incoming, Channels) else None
    if inward is not None:
        _tie_blocks(call.table, inward, groups, whole=by_group)
    if by_group:
        layer = _layer_of(call, weight)
        outward = call.table.issue(
            (weight.name, 0), groups * per_out, kind="conv", layer=layer, kernel=weight.shape[2:]
        )
        _tie_blocks(call.table, outward, groups, whole=True)
        name = weight.name if layer == weight.name else f"{layer}.weight"
        call.table.grouped[name] = per_in if transposed else per_out
        if inward is None:
            reason = incoming.reason if isinstance(incoming, Fixed) else f"{call.place} reads constants"
            call.table.freeze(outward, reason)
            return outward
        call.table.tie(inward[::per_in], outward[::per_out])
        call.table.bind(weight.name, 0, inward if transposed else outward)
        return outward
    own = own_filters(call, weight, 1 if transposed else 0)
    slices: Payload | None = incoming
    if inward is not None and not transposed:
        slices = Channels(1, inward[:per_in])
    read_input(call, weight.name, 0 if transposed else 1, slices, weight.shape[0 if transposed else 1])
    if transposed:
        return np.tile(own, groups)
    _tie_blocks(call.table, own, groups, whole=False)
    return own


def _tie_blocks(table: AtomTable, atoms: Atoms, groups: int, *, whole: bool) -> None:
    """Tie the channels of each group to one another, or those at the same position in every group."""
    blocks = atoms.reshape(groups, -1)
    keepers = np.repeat(blocks[:, 0], blocks.shape[1]) if whole else np.tile(blocks[0], groups)
    table.tie(atoms, keepers)


def batch_norm(call: Call) -> list[Payload]:
    """Batch norm, and instance norm which torch runs through it: each channel separately."""
    incoming = call.lookup(next(call.tensors()))
    rest: list[Payload] = [Constant()] * (len(call.outputs) - 1)
    if isinstance(incoming, Origin):
        return normalised(call, incoming, 1, set(range(len(incoming.viewed_shape()))) - {1})
    if not isinstance(incoming, Channels):
        return [incoming if isinstance(incoming, Fixed) else Constant(), *rest]
    if incoming.dimension != 1:
        return call.freeze_inputs(f"{call.place} normalises along another axis")
    for tensor in list(call.tensors())[1:]:
        if tensor.numel():
            call.bind_along(tensor, 0, incoming.atoms)
    _note_norm(call, incoming)
    return [incoming, *rest]


def layer_norm(call: Call) -> list[Payload]:
    """Layer norm: across channels its statistics are those of the channels that stay."""
    tensor = call.args["input"]
    incoming = call.lookup(tensor)
    rest: list[Payload] = [Constant()] * (len(call.outputs) - 1)
    if isinstance(incoming, Origin):
        trailing = range(tensor.ndim - len(call.args["normalized_shape"]), tensor.ndim)
        return normalised(call, incoming, None, set(trailing))
    if not isinstance(incoming, Channels):
        return [incoming if isinstance(incoming, Fixed) else Constant(), *rest]
    dimension = incoming.dimension - (tensor.ndim - len(call.args["normalized_shape"]))
    if dimension >= 0:
        for name in ("weight", "bias"):
            if isinstance(call.args.get(name), Tensor):
                call.bind_along(call.args[name], dimension, incoming.atoms)
        if call.module is not None:
            call.table.norms[(call.layer, dimension)] = incoming.atoms
    return [incoming, *rest]


def group_norm(call: Call) -> list[Payload]:
    """Group norm: whole groups go, or the same positions in every group, whichever is finer."""
    incoming = call.payload("input")
    rest: list[Payload] = [Constant()] * (len(call.outputs) - 1)
    if isinstance(incoming, Origin):
        return call.freeze_inputs(f"{call.place} normalises a whole parameter")
    if not isinstance(incoming, Channels):
        return [incoming if isinstance(incoming, Fixed) else Constant(), *rest]
    if incoming.dimension != 1:
        return call.freeze_inputs(f"{call.place} normalises along another axis")
    groups = call.args["group"]
    whole = whole_groups_go(groups, len(incoming.atoms))
    _tie_blocks(call.table, incoming.atoms, groups, whole=whole)
    if whole:
        call.table.grouped[f"{call.layer}.weight"] = len(incoming.atoms) // groups
    for name in ("weight", "bias"):
        if isinstance(call.args.get(name), Tensor):
            call.bind_along(call.args[name], 0, incoming.atoms)
    _note_norm(call, incoming)
    return [incoming, *rest]


def whole_groups_go(groups: int, channels: int) -> bool:
    """Whether a group norm is thinned by whole groups (as many groups as channels in one, or more)."""
    return groups > 1 and groups >= channels // groups


def _note_norm(call: Call, incoming: Channels) -> None:
    """Norm layers without parameters still store a width: remember which channels it counts."""
    if call.module is not None and len(incoming.atoms) == getattr(
        call.module, "num_features", getattr(call.module, "num_channels", -1)
    ):
        call.table.norms[(call.layer, 0)] = incoming.atoms


WITH_ADDEND = ("addmm", "baddbmm")


@dataclass(frozen=True)
class _Product:
    """A product that reads `source` along one dimension by a weight."""

    weight: Origin
    matrix: Tensor  # the weight as it is multiplied
    inner: int  # the dimension of the matrix that is summed over
    outer: int  # the one that makes the outputs
    source: Tensor
    read: int  # the dimension of the source that is summed over
    made: int  # the dimension of the outputs, counted from the end


def matmul(call: Call) -> list[Payload]:
    """A linear layer (mm, addmm, bmm with a parameter on one side), or a product of activations."""
    product = _product(call)
    if product is None:
        return product_of_activations(call)
    weight, matrix = product.weight, product.matrix
    if math.prod(weight.shape) != matrix.shape[product.inner] * matrix.shape[product.outer]:
        return call.freeze_inputs(f"{call.place} uses a part of {weight.name}")
    inner = _own_dimension(weight, matrix, product.inner)
    if inner is None:
        return call.freeze_inputs(f"{call.place} sums over several dimensions of {weight.name}")
    incoming = read_along(call, call.lookup(product.source), product.read)
    if isinstance(incoming, Channels) and matrix.shape[product.inner] > 1:
        call.bind_along(matrix, product.inner, incoming.atoms)
    else:
        read_input(call, weight.name, inner, incoming, weight.shape[inner])
    return [_outputs(call, product, inner)]


def _product(call: Call) -> _Product | None:
    """The weight and what it is multiplied with, None where neither side is a parameter.

    Where both are (a layer reads learned tokens), the weight comes after what it reads.
    """
    tensors = list(call.tensors())
    left, right = tensors[1:3] if call.name in WITH_ADDEND else tensors[:2]
    first, second = call.lookup(left), call.lookup(right)
    last, rows = right.ndim - 1, right.ndim - 2
    if isinstance(second, Origin):
        inner, outer = (last, rows) if call.name == "linear" else (rows, last)
        return _Product(second, right, inner, outer, left, left.ndim - 1, -1)
    if call.name not in ("mm", "bmm") or not isinstance(first, Origin):
        return None
    return _Product(first, left, left.ndim - 1, left.ndim - 2, right, rows, -2)


def _own_dimension(weight: Origin, matrix: Tensor, dimension: int) -> int | None:
    """The weight's own dimension along one of the matrix; None where it is not one alone."""
    size = matrix.shape[dimension]
    if size > 1:
        matched = weight.own_dimension(dimension)
        return matched[0] if matched is not None and weight.shape[matched[0]] == size else None
    lone = [own for own, extent in enumerate(weight.shape) if extent == 1]
    return lone[0] if lone and len(weight.shape) == 2 else None


def _outputs(call: Call, product: _Product, inner: int) -> Payload:
    """Channels of the layer's own, unless its outputs do not lie along one dimension of the weight."""
    weight, matrix = product.weight, product.matrix
    outer = _own_dimension(weight, matrix, product.outer)
    if outer is None or outer == inner:
        reason = f"{call.place} makes its outputs of several dimensions of {weight.name}, or of none"
        for own in weight.wide_dimensions():
            if own != inner:
                call.table.freeze(call.parameter_atoms(weight, own), reason)
        return Fixed(reason)
    atoms = own_filters(call, weight, outer, kind="linear")
    matched = weight.own_dimension(product.outer) if len(atoms) > 1 else None
    if matched is not None:
        atoms = atoms[matched[1]]
    addend = call.args.get("self") if call.name in WITH_ADDEND else call.args.get("bias")
    if isinstance(addend, Tensor):
        call.bind_along(addend, addend.ndim - 1, atoms)
    return Channels(call.outputs[0].ndim + product.made, atoms)
