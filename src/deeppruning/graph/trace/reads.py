"""What the forward code asks of tensors without an operation: their sizes, and their values as numbers.

Neither can be followed any further. Sizes that were read are tried at their extremes; values that were
taken out must not change by a cut, and the code that they decide about was seen for one example only.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SHAPE: Any = Tensor.shape  # as a property of the class
SIZES = frozenset({SHAPE.__get__, Tensor.size, Tensor.numel, Tensor.nelement, torch.numel})
EXITS = {
    Tensor.tolist: "tolist",
    Tensor.numpy: "numpy",
    Tensor.__array__: "numpy",
    Tensor.__dlpack__: "dlpack",
    Tensor.data_ptr: "data_ptr",
}
# Operations that hand numbers to Python, and what people call them.
NUMBERS = {"_local_scalar_dense": "item", "equal": "equal"}


class Reads(TorchFunctionMode):
    """Calls back where the size of a tensor is read (along one dimension or all) and where its values are."""

    def __init__(
        self, size: Callable[[Tensor, int | None], None], exit_of: Callable[[Tensor, str], None]
    ) -> None:
        super().__init__()
        self.size = size
        self.exit_of = exit_of

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SIZES:
            dimension = args[1] if len(args) > 1 else kwargs.get("dim")
            self.size(args[0], dimension if isinstance(dimension, int) else None)
        elif func is Tensor.__len__:
            self.size(args[0], 0)
        elif func in EXITS:
            self.exit_of(args[0], EXITS[func])
        return func(*args, **kwargs)
