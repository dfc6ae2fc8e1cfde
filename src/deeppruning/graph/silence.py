"""Silencing: the full network with removed channels held at zero, the yardstick every cut must meet."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.graph.atoms import Ids
from deeppruning.graph.call import Call
from deeppruning.graph.labels import Channels, Payload
from deeppruning.graph.rules_layers import whole_groups_go


class Silencer:
    """Holds the channels of removed atoms at zero after every operation.

    `kept` says for each atom whether it stays. A norm that takes its statistics across channels is
    run on the channels that stay: silence there means not being heard in the statistics either.
    """

    def __init__(self, kept: NDArray[np.bool_]) -> None:
        self.kept = kept

    def __call__(self, call: Call, payloads: list[Payload]) -> None:
        """Silence the outputs of one operation, in place."""
        if call.name in ("native_layer_norm", "native_group_norm"):
            self._norm_of_kept(call, payloads[0])
        if call.function is not None and call.function.is_view:
            return  # a view of silenced data is silent already
        for tensor, payload in zip(call.outputs, payloads, strict=True):
            if isinstance(payload, Channels):
                removed = ~self.kept[payload.ids]
                if removed.any():
                    _hold_at_zero(tensor, payload.axis, removed)

    def _norm_of_kept(self, call: Call, payload: Payload) -> None:
        if not isinstance(payload, Channels) or self.kept[payload.ids].all():
            return
        positions = torch.from_numpy(np.flatnonzero(self.kept[payload.ids])).to(call.outputs[0].device)
        args = dict(call.args)
        if call.name == "native_layer_norm":
            dimension = payload.axis - (args["input"].ndim - len(args["normalized_shape"]))
            if dimension < 0:
                return
            shape = list(args["normalized_shape"])
            shape[dimension] = len(positions)
            args["normalized_shape"] = shape
        else:
            dimension = 0
            if whole_groups_go(args["group"], args["C"]):
                args["group"] = args["group"] * len(positions) // args["C"]
            args["C"] = len(positions)
        args["input"] = args["input"].index_select(payload.axis, positions).contiguous()
        for name in ("weight", "bias"):
            if isinstance(args.get(name), Tensor):
                args[name] = args[name].index_select(dimension, positions)
        call.outputs[0].index_copy_(payload.axis, positions, call.function(**args)[0])


def _hold_at_zero(tensor: Tensor, axis: int, removed: NDArray[np.bool_]) -> None:
    shape = [1] * tensor.ndim
    shape[axis] = -1
    tensor.masked_fill_(torch.from_numpy(removed).reshape(shape).to(tensor.device), 0)


def kept_atoms(
    classes: Ids, gene_of_class: NDArray[np.int64], genome: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """For each atom whether it stays under this genome."""
    extended: Any = np.append(genome, True)
    return np.asarray(extended[gene_of_class[classes]], dtype=np.bool_)
