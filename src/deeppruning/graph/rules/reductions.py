"""What reductions and softmax do to labels: harmless along other dimensions than the channels'."""

from torch import Tensor

from deeppruning.graph.labels.payloads import Channels, Origin, Payload
from deeppruning.graph.rules.call import Call
from deeppruning.graph.rules.statistics import carried, over_channels
from deeppruning.graph.rules.weights import reduction


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
