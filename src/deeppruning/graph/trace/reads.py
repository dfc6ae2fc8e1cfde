"""What forward code reads of tensors without an operation that could be followed: sizes and values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deeppruning.graph.trace.sizes import SizeBook

SHAPE: Any = Tensor.shape  # as a property of the class
SIZES = frozenset({SHAPE.__get__, Tensor.size, Tensor.numel, Tensor.nelement, torch.numel})
EXITS = {
    Tensor.tolist: "tolist",
    Tensor.numpy: "numpy",
    Tensor.__array__: "numpy",
    Tensor.__dlpack__: "dlpack",
    Tensor.data_ptr: "data_ptr",
}


class Reads(TorchFunctionMode):
    """Calls back where forward code reads the size of a tensor (along one dimension or all) or its values."""

    def __init__(
        self,
        size: Callable[[Tensor, int | None, Any], Any],
        exit_of: Callable[[Tensor, str], None],
        hand_over: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self.size = size
        self.exit_of = exit_of
        self.hand_over = hand_over

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SIZES:
            dimension = args[1] if len(args) > 1 else kwargs.get("dim")
            read = func(*args, **kwargs)
            return self.size(args[0], dimension if isinstance(dimension, int) else None, read)
        if func is Tensor.__len__:
            return int(
                self.size(args[0], 0, len(args[0]))
            )  # `len` gives a plain number, whatever it is given
        if func in EXITS:
            self.exit_of(args[0], EXITS[func])
        self.hand_over(args)
        if kwargs:
            self.hand_over(kwargs.values())
        return func(*args, **kwargs)


def watch_attributes(model: nn.Module, book: SizeBook) -> None:
    """Let standard layers, in place, tell what is decided by the sizes they store as attributes."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for module in model.modules():
        weight = module._parameters.get("weight")
        if weight is None:
            continue
        for attribute, dimension in _sizes_of(module).items():
            value = module.__dict__.get(attribute)
            if type(value) is int and value == weight.shape[dimension]:
                source = (names[id(weight)], dimension)
                module.__dict__[attribute] = book.size(value, source, read=False)


def _sizes_of(module: nn.Module) -> dict[str, int]:
    """Attribute -> the dimension of the weight that it follows in a thin copy."""
    if isinstance(module, nn.modules.conv._ConvNd):
        turned = int(module.transposed)
        inward = {"in_channels": 1 - turned} if module.groups == 1 else {}
        return {"out_channels": turned, **inward}
    if isinstance(module, nn.Linear):
        return {"out_features": 0, "in_features": 1}
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return {"num_features": 0}
    return {"num_channels": 0} if isinstance(module, nn.GroupNorm) else {}
