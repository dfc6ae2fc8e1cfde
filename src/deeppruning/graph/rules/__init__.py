"""Rules: what each operation does to labels. Operations that are not known freeze what they touch."""

from collections.abc import Callable

from deeppruning.graph.payloads import Constant, Payload
from deeppruning.graph.rules import attention, elementwise, layers, operations, reductions, weights
from deeppruning.graph.rules.call import Call

Rule = Callable[[Call], list[Payload]]


def _constants(call: Call) -> list[Payload]:
    """Results that carry no channels."""
    return [Constant()] * len(call.outputs)


RULES: dict[str, Rule] = {
    "convolution": layers.convolution,
    **dict.fromkeys(operations.MATRIX_PRODUCTS, layers.matmul),
    **dict.fromkeys(operations.BATCH_NORMS, layers.batch_norm),
    "native_layer_norm": layers.layer_norm,
    "native_group_norm": layers.group_norm,
    "_weight_norm_interface": weights.weight_norm,
    "as_strided": elementwise.as_strided,
    "glu": elementwise.glu,
    **dict.fromkeys(operations.SAMPLERS, elementwise.sampled),
    **dict.fromkeys(operations.UNPOOLINGS, elementwise.unpooled),
    **dict.fromkeys(operations.SAME, elementwise.same),
    **dict.fromkeys(operations.MOVES, elementwise.move),
    **dict.fromkeys(operations.FACTORIES, _constants),
    **dict.fromkeys(operations.LIKENESSES, elementwise.likeness),
    **dict.fromkeys(operations.POSITIONS, elementwise.positions),
    **dict.fromkeys(operations.ALONG, reductions.along),
}


def find_rule(call: Call) -> Rule:
    """The rule for an operation."""
    if call.name in RULES:
        return RULES[call.name]
    if call.name == "_safe_softmax" and call.table.whole_heads:  # torch's attention with dropout, in parts
        return reductions.along
    if call.name.startswith(operations.SPATIAL_PREFIXES):
        return elementwise.spatial
    if elementwise.is_elementwise(call):
        return elementwise.elementwise
    if call.name.startswith(operations.ATTENTION_PREFIX):
        return attention.kernel
    return lambda call: call.freeze_inputs(f"{call.place} is not understood")
