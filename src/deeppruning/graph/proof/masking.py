"""Masking: the full network with removed channels held at zero, which every cut must equal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.payloads import Channels, Payload, Statistic
from deeppruning.graph.rules.layers import whole_groups_go
from deeppruning.graph.trace.follow import Follower, by_name, execute, operation_name, tensors_in
from deeppruning.graph.trace.tracer import Record


class MaskedRun(Follower):
    """Runs the full network with the channels of removed atoms held at zero after every operation.

    `records` are those of the run on labels, `kept` says for each atom whether it stays. A norm that
    takes its statistics across channels is run on the channels that stay, so that removed channels do not
    take part in the statistics either. Any other statistic sees zeros, whatever labels say of it.
    """

    def __init__(
        self, model: nn.Module, detached: frozenset[str], records: Sequence[Record], kept: Bits
    ) -> None:
        super().__init__(model, detached)
        self.records = records
        self.kept = kept
        self.position = 0
        self.coarsest = torch.float64  # the lowest precision that channels were held in

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and mask its outputs."""
        result = execute(func, args, kwargs)
        outputs = tensors_in(result)
        if not outputs:
            return result
        record = self._due(operation_name(func))
        if record.name in ("native_layer_norm", "native_group_norm"):
            self._norm_of_kept(func, by_name(func, args, kwargs), record.payloads[0], outputs[0])
        if record.normed and isinstance(record.payloads[0], Statistic):
            self._statistic_of_kept(func, by_name(func, args, kwargs), record.payloads[0], outputs)
        if not func.is_view:  # a view of masked data is masked already
            self._mask(record, outputs)
        self.done(record, outputs)
        return result

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """Mask the output of a detached module, in a copy: the module may return its own input."""
        record = self._due("module")
        fresh = output.clone()
        self._mask(record, [fresh])
        self.done(record, [fresh])
        return fresh

    def done(self, record: Record, outputs: list[Tensor]) -> None:
        """An operation has been executed and masked."""

    def _due(self, name: str) -> Record:
        """The record of the traced run for the operation that runs now."""
        if self.position >= len(self.records) or self.records[self.position].name != name:
            raise GraphError(
                f"operation {self.position} of the network ({name}) differs from when its graph was built: "
                "its forward depends on the values it sees"
            )
        self.position += 1
        return self.records[self.position - 1]

    def _mask(self, record: Record, outputs: list[Tensor]) -> None:
        """Hold the removed channels of an operation's outputs at zero."""
        for tensor, payload in zip(outputs, record.payloads, strict=True):
            if isinstance(payload, Channels):
                self._note_precision(tensor.dtype)
                removed = ~self.kept[payload.atoms]
                if removed.any():
                    _hold_at_zero(tensor, payload.dimension, removed)

    def _note_precision(self, kind: torch.dtype) -> None:
        """Remember the coarsest precision of the run."""
        if kind.is_floating_point and torch.finfo(kind).eps > torch.finfo(self.coarsest).eps:
            self.coarsest = kind

    def _norm_of_kept(self, func: Any, args: dict[str, Any], payload: Payload, output: Tensor) -> None:
        """Compute a norm over the channels that stay, as a thin network does."""
        if not isinstance(payload, Channels) or self.kept[payload.atoms].all():
            return
        if not self.kept[payload.atoms].any():
            return  # all of it is held at zero
        positions = torch.from_numpy(np.flatnonzero(self.kept[payload.atoms])).to(output.device)
        if "normalized_shape" in args:
            dimension = payload.dimension - (args["input"].ndim - len(args["normalized_shape"]))
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
        args["input"] = args["input"].index_select(payload.dimension, positions).contiguous()
        for name in ("weight", "bias"):
            if isinstance(args.get(name), Tensor):
                args[name] = args[name].index_select(dimension, positions)
        output.index_copy_(payload.dimension, positions, func(**args)[0])

    def _statistic_of_kept(
        self, func: Any, args: dict[str, Any], payload: Statistic, outputs: list[Tensor]
    ) -> None:
        """Compute a statistic over the channels that stay, as a thin network does."""
        kept = self.kept[payload.atoms]
        if kept.all():
            return
        name, tensor = next((name, value) for name, value in args.items() if isinstance(value, Tensor))
        positions = torch.from_numpy(np.flatnonzero(kept)).to(tensor.device)
        statistics = tensors_in(func(**{**args, name: tensor.index_select(payload.dimension, positions)}))
        for output, value in zip(outputs, statistics, strict=True):
            output.copy_(value)


def _hold_at_zero(tensor: Tensor, dimension: int, removed: Bits) -> None:
    """Set the removed channels of a tensor to zero, in place."""
    shape = [1] * tensor.ndim
    shape[dimension] = -1
    tensor.masked_fill_(torch.from_numpy(removed).reshape(shape).to(tensor.device), 0)


def kept_atoms(genes: Genes, genome: Bits) -> Bits:
    """For each atom whether it stays under this genome, given the gene of each."""
    return np.asarray(np.append(genome, True)[genes])
