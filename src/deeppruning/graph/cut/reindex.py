"""A wrapper that lets a parameter-free module with sizes written into it run inside a thin network."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Reindexed(nn.Module):
    """Spread the thin input over its old width, run the module as it is, pick the channels that stay.

    A ResNet's zero-padded shortcut is the classic case: it pads 16 channels to 32 whatever comes in.
    The removed input channels are zeros, exactly as if their filters had been silenced.
    """

    spread: Tensor
    pick: Tensor

    def __init__(self, inner: nn.Module, kept_in: Tensor, width_in: int, kept_out: Tensor) -> None:
        super().__init__()
        self.inner = inner
        positions = torch.full((width_in,), len(kept_in), dtype=torch.long)  # the zero channel put last
        positions[kept_in] = torch.arange(len(kept_in))
        self.register_buffer("spread", positions, persistent=False)
        self.register_buffer("pick", kept_out.clone(), persistent=False)
        self.full_in = len(kept_in) == width_in

    def forward(self, x: Tensor) -> Tensor:
        """The module's output on the channels that stay."""
        if not self.full_in:
            padding = [0, 0] * (x.dim() - 2) + [0, 1]
            x = functional.pad(x, padding).index_select(1, self.spread)
        out: Tensor = self.inner(x)
        return out.index_select(1, self.pick)
