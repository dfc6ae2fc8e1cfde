"""`nn.MultiheadAttention` with fewer heads than its width has room for, which torch's own cannot have.

The same parameters, arguments and results, by the same operations, so that a thin network can be compared
with the full one; queries, keys and values are as wide as the heads that are left.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class ThinMultiheadAttention(nn.MultiheadAttention):
    """Replaces the class of a module that has lost heads: `num_heads` of `head_dim` channels each."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's; `is_causal` is only a hint there and the mask decides, so it is not used here."""
        batched = query.dim() == 3
        lengthwise = self.batch_first and batched
        query, key, value = _each(lambda x: x.transpose(1, 0) if lengthwise else x, query, key, value)
        query, key, value = _each(lambda x: x if batched else x.unsqueeze(1), query, key, value)
        length, batch, _ = query.shape
        q, k, v = self._projected(query, key, value)
        q, k, v = (self._by_head(x, batch) for x in (q, k, v))
        mask = _merged(attn_mask, key_padding_mask, query, batch, self.num_heads)
        weights = None
        if need_weights:
            weights = self._weights(q, k, mask)
            mixed = torch.bmm(functional.dropout(weights, self._share()) if self._share() else weights, v)
            mixed = mixed.transpose(0, 1)
        else:
            q, k, v = (x.view(batch, self.num_heads, x.shape[1], self.head_dim) for x in (q, k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, mask, self._share())
            mixed = mixed.permute(2, 0, 1, 3)
        mixed = mixed.reshape(length * batch, self.num_heads * self.head_dim)
        mixed = self._project(mixed, length, batch)
        if weights is not None:
            weights = weights.view(batch, self.num_heads, length, weights.shape[-1])
            weights = weights.mean(dim=1) if average_attn_weights else weights
        if not batched:
            return mixed.squeeze(0), weights if weights is None else weights.squeeze(0)
        return mixed if lengthwise else mixed.transpose(1, 0), weights

    def _project(self, mixed: Tensor, length: int, batch: int) -> Tensor:
        """(batch, tokens, width): the output projection of (tokens x batch, channels of all heads)."""
        made = functional.linear(mixed, self.out_proj.weight, self.out_proj.bias)
        return made.view(length, batch, -1).transpose(1, 0)

    def _share(self) -> float:
        """The share of weights that is dropped."""
        return float(self.dropout) if self.training else 0.0

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads that are left."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if query is key and key is value:
            packed = functional.linear(query, weight, bias)
            packed = packed.view(*query.shape[:2], 3, self.num_heads * self.head_dim)
            packed = packed.unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
            return packed[0], packed[1], packed[2]
        biases: Sequence[Tensor | None] = (None, None, None) if bias is None else bias.chunk(3)
        parts = zip((query, key, value), weight.chunk(3), biases, strict=True)
        q, k, v = (functional.linear(*part) for part in parts)
        return q, k, v

    def _by_head(self, x: Tensor, batch: int) -> Tensor:
        """(batch x heads, tokens, channels of a head)."""
        return x.view(x.shape[0], batch * self.num_heads, self.head_dim).transpose(0, 1)

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """(batch x heads, queries, keys): how much each query takes of each value."""
        q = q * (1.0 / self.head_dim) ** 0.5
        if mask is None:
            return torch.bmm(q, k.transpose(-2, -1)).softmax(dim=-1)
        wide = mask.expand(-1, self.num_heads, -1, -1).flatten(0, 1) if mask.shape[0] > 1 else mask[0]
        return torch.baddbmm(wide, q, k.transpose(-2, -1)).softmax(dim=-1)


def _each(change: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three, changed; those that were the same tensor still are."""
    made = {id(x): change(x) for x in (query, key, value)}
    return made[id(query)], made[id(key)], made[id(value)]


def _merged(
    attn_mask: Tensor | None, padding: Tensor | None, like: Tensor, batch: int, heads: int
) -> Tensor | None:
    """Both masks as numbers to add, (1 or batch, 1 or heads, queries or 1, keys)."""
    mask = None if attn_mask is None else _as_numbers(attn_mask, like)
    if mask is not None:
        if mask.dim() != 2 and mask.shape[0] != batch * heads:
            raise ValueError(
                f"attn_mask has a mask for each head, but this network has lost heads and has {heads}: "
                f"give one of shape (queries, keys) for all of them, got {tuple(mask.shape)}"
            )
        mask = mask[None, None] if mask.dim() == 2 else mask.view(batch, heads, *mask.shape[1:])
    if padding is None:
        return mask
    keys = _as_numbers(padding, like).view(batch, 1, 1, -1)
    return keys if mask is None else mask + keys


def _as_numbers(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to add: minus infinity where it was true."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
