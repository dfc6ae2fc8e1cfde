"""Images whose channels lie last in memory: layers run faster on them, if the network's code allows it.

>>> memory_format_for(nn.Conv2d(3, 4, 3), (torch.zeros(2, 3, 8, 8),))
torch.channels_last
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


def laid_out(value: Any, memory_format: torch.memory_format) -> Any:
    """The same value; images of floating point in it as they lie in this format.

    >>> laid_out({"x": torch.zeros(2, 3, 8, 8)}, torch.channels_last)["x"].stride()
    (192, 1, 24, 3)
    """

    def moved(leaf: Any) -> Any:
        images = isinstance(leaf, Tensor) and leaf.dim() == 4 and leaf.is_floating_point()
        return leaf.contiguous(memory_format=memory_format) if images else leaf

    return tree_map(moved, value)


def memory_format_for(
    network: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})
) -> torch.memory_format:
    """Channels last, unless the code of a network, in evaluation mode, cannot run so on these inputs.

    One that flattens maps by `view` cannot.
    """
    with torch.no_grad():
        try:
            args, kwargs = laid_out((tuple(args), dict(kwargs)), torch.channels_last)
            network(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever a network's own code raises: plain images are what it knows
            return torch.contiguous_format
    return torch.channels_last
