"""What attention does to labels: heads are multiplied one by one, so the channels of a head go together.

Queries, keys and values come as (..., heads, tokens, channels of a head): the heads are what can be removed.
A view that makes heads of channels can be cut along several dimensions; unless it was cut along the heads,
attention sums over what is cut, or all heads have one label: such channels are noted (`crossed`), so that the
view is cut along another dimension.
"""

import numpy as np
from torch import Tensor

from deeppruning.graph.atoms import Atoms, Heads
from deeppruning.graph.payloads import Channels, Constant, Payload
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.operations import ATTENTION_PREFIX

ADDENDS = {"baddbmm": "self"}
MASKS = ("attn_mask", "attn_bias")


def kernel(call: Call) -> list[Payload]:
    """Torch's own attention, in one operation."""
    found = _heads(call, _factors(call))
    if found is None:
        return call.freeze_inputs(f"attention in {call.layer or 'forward'} stays whole")
    _add(call, [call.args[name] for name in MASKS if name in call.args], found)
    return [found, *[Constant()] * (len(call.outputs) - 1)]


def product_of_activations(call: Call) -> list[Payload]:
    """One of the two products of attention that is written out, or any other product head by head."""
    found = _heads(call, _factors(call))
    if found is None:
        return call.freeze_inputs(f"{call.place} multiplies activations, as attention does: it stays whole")
    if call.name in ADDENDS:
        _add(call, [call.args[ADDENDS[call.name]]], found)
    return [found]


def per_head(call: Call) -> Atoms | None:
    """The heads of a product with equal costs for each of them; None for any other operation."""
    factors = _factors(call) if call.table.whole_heads else []
    first = call.peek(factors[0]) if factors else None
    return first.atoms if isinstance(first, Channels) and _lie_across(first, factors[0]) else None


def _factors(call: Call) -> list[Tensor]:
    """What is multiplied."""
    tensors = list(call.tensors())
    if call.name.startswith(ATTENTION_PREFIX):
        return tensors[:3]
    if call.name in ADDENDS:
        return tensors[1:3]
    return tensors[:2] if call.name == "bmm" else []


def _lie_across(channels: Channels, tensor: Tensor) -> bool:
    """Whether channels lie along a dimension that a product of matrices does not touch."""
    return channels.dimension < tensor.ndim - 2


def _heads(call: Call, factors: list[Tensor]) -> Channels | None:
    """The heads of a product, the same in all its factors; None where there are none to remove."""
    if not call.table.whole_heads or not factors:
        return None
    payloads = [(tensor, call.lookup(tensor)) for tensor in factors]
    carriers = [(tensor, payload) for tensor, payload in payloads if isinstance(payload, Channels)]
    crossed = [
        payload.atoms
        for tensor, payload in carriers
        if not _lie_across(payload, tensor) or (payload.atoms == payload.atoms[0]).all()
    ]
    call.table.crossed += crossed
    first = carriers[0][1] if carriers else None
    if crossed or first is None or len(carriers) < len(payloads):
        return None
    if any(p.dimension != first.dimension or len(p.atoms) != len(first.atoms) for _, p in carriers):
        return None
    for _, payload in carriers[1:]:
        call.table.tie(first.atoms, payload.atoms)
    order = np.sort(np.unique(first.atoms, return_index=True)[1])
    widths = frozenset(tensor.shape[-1] for tensor in factors)
    call.table.heads.append(Heads(call.modules, first.atoms[order], widths))
    return first


def _add(call: Call, added: list[Tensor | None], heads: Channels) -> None:
    """Something is added to the products of all heads, or of each of them."""
    rank = call.outputs[0].ndim
    for tensor in added:
        own = heads.dimension - rank + tensor.ndim if isinstance(tensor, Tensor) else -1
        if not isinstance(tensor, Tensor) or own < 0:
            continue
        payload = call.lookup(tensor)
        if not isinstance(payload, Channels):
            call.bind_along(tensor, own, heads.atoms)
        elif payload.dimension == own and len(payload.atoms) == len(heads.atoms):
            call.table.tie(heads.atoms, payload.atoms)
        else:
            reason = f"{call.place} combines channels along different axes"
            call.table.freeze(payload.atoms, reason)
            call.table.freeze(heads.atoms, reason)
