"""Output projections of `nn.MultiheadAttention`, as layers that are called.

Torch hands their weights to one function for the whole attention, so that no hook sees what they read. While
a network is recorded or refitted, its attention runs in a form that calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from deeppruning.graph.cut.multihead import ThinMultiheadAttention


class CallingAttention(ThinMultiheadAttention):
    """The class of such a module meanwhile: the same results up to rounding."""

    def _project(self, mixed: Tensor, length: int, batch: int) -> Tensor:
        """The layer is called with the inputs of the network in its first dimension, as any other."""
        made: Tensor = self.out_proj(mixed.view(length, batch, -1).transpose(1, 0))
        return made


@contextmanager
def projections_called(model: nn.Module) -> Iterator[None]:
    """Let the attention of a network call its output projections, where that gives the same results."""
    before = [
        (module, type(module), module._qkv_same_embed_dim)
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention) and _can_call(module)
    ]
    try:
        for module, _, _ in before:
            module.__class__ = CallingAttention
            module._qkv_same_embed_dim = False  # torch's fused kernels would read the weights themselves
        yield
    finally:
        for module, kind, same in before:
            module.__class__ = kind
            module._qkv_same_embed_dim = same


def _can_call(module: nn.MultiheadAttention) -> bool:
    """Whether an attention is torch's own, for which the other form is written, and its projection plain."""
    projection = module.out_proj
    plain = type(projection).forward is nn.Linear.forward and "forward" not in vars(projection)
    hooked = projection._forward_hooks or projection._forward_pre_hooks  # torch would not run them
    packed = module.in_proj_weight is not None and module.bias_k is None and not module.add_zero_attn
    return type(module) in (nn.MultiheadAttention, ThinMultiheadAttention) and packed and plain and not hooked
