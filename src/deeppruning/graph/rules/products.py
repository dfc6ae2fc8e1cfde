"""What products of matrices do to labels: a parameter on either side makes them a linear layer.

An einsum of an activation and a parameter arrives here as such a product, between views.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from deeppruning.graph.labels.payloads import Channels, Fixed, Origin, Payload
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.layers import own_filters, read_along, read_input

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
    """A linear layer (mm, addmm, bmm with a parameter on one side); products of activations freeze."""
    product = _product(call)
    if product is None:
        return call.freeze_inputs(f"{call.place} multiplies activations, as attention does: it stays whole")
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
        found = weight.own_dimension(dimension)
        return found[0] if found is not None and weight.shape[found[0]] == size else None
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
    found = weight.own_dimension(product.outer) if len(atoms) > 1 else None
    if found is not None:
        atoms = atoms[found[1]]
    addend = call.args.get("self") if call.name in WITH_ADDEND else call.args.get("bias")
    if isinstance(addend, Tensor):
        call.bind_along(addend, addend.ndim - 1, atoms)
    return Channels(call.outputs[0].ndim + product.made, atoms)
