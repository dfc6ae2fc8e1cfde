"""What forward code reads of tensors without an operation that could be followed: sizes and values."""

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deeppruning.graph.trace.sizes import SizeBook

SHAPE: Any = Tensor.shape  # as properties of the class
NBYTES: Any = Tensor.nbytes
SIZES = frozenset({SHAPE.__get__, Tensor.size, Tensor.numel, Tensor.nelement, torch.numel})
LAYOUTS = frozenset({Tensor.stride, Tensor.untyped_storage, Tensor.storage, NBYTES.__get__})
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
            if isinstance(dimension, int):
                return self.size(args[0], dimension, read)
            taken = taken_next(sys._getframe(1)) if isinstance(read, tuple) else None
            return self.size(args[0], None, read) if taken is None else self._part(args[0], read, taken)
        if func is Tensor.__len__:
            return int(
                self.size(args[0], 0, len(args[0]))
            )  # `len` gives a plain number, whatever it is given
        if func in LAYOUTS:  # from which sizes may be computed
            self.size(args[0], None, ())
        if func in EXITS:
            self.exit_of(args[0], EXITS[func])
        self.hand_over(args)
        if kwargs:
            self.hand_over(kwargs.values())
        return func(*args, **kwargs)

    def _part(self, tensor: Tensor, read: Any, taken: int | slice) -> Any:
        """A shape of which the code takes only a part: the rest is not read."""
        places = range(len(read))[taken] if -len(read) <= _lowest(taken) < len(read) else ()
        for place in [places] if isinstance(places, int) else places:
            read = (*read[:place], self.size(tensor, place, read[place]), *read[place + 1 :])
        return torch.Size(read)


def _lowest(taken: int | slice) -> int:
    """The smallest dimension that is taken from a shape."""
    return taken if isinstance(taken, int) else 0


@lru_cache(maxsize=4096)
def _instructions(code: CodeType) -> dict[int, list[dis.Instruction]]:
    """Offset -> the instruction there and those after it, without those that do nothing."""
    listed = [
        each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "NOP", "EXTENDED_ARG")
    ]
    return {each.offset: listed[place : place + 5] for place, each in enumerate(listed)}


def taken_next(frame: FrameType) -> int | slice | None:
    """What the code of a frame takes from the result of its present instruction, if that is written down.

    Most code that asks for a whole shape wants `x.shape[0]` or `x.shape[2:]`: channels are then not read.
    """
    _, *after = _instructions(frame.f_code).get(frame.f_lasti, [None])
    constants: list[Any] = []
    for each in after:
        if each is not None and each.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(each.argval)
        elif each is not None and each.opname == "BUILD_SLICE" and len(constants) == 2:
            constants = [slice(*constants)]
        elif each is not None and each.opname == "BINARY_SLICE" and len(constants) == 2:
            return _whole_numbers(slice(*constants))
        elif (
            each is not None
            and len(constants) == 1
            and (each.opname == "BINARY_SUBSCR" or each.argrepr == "[]")
        ):
            return _whole_numbers(constants[0])
        else:
            return None
    return None


def _whole_numbers(taken: Any) -> int | slice | None:
    """An index or slice of plain integers, else None."""
    parts = (taken.start, taken.stop, taken.step) if isinstance(taken, slice) else (taken,)
    allowed = (int, type(None)) if isinstance(taken, slice) else (int,)
    return taken if all(type(part) in allowed for part in parts) else None


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
        if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
            source = (names[id(weight)], 0)
            module.normalized_shape = (book.size(module.normalized_shape[0], source, read=False),)


def _sizes_of(module: nn.Module) -> dict[str, int]:
    """Attribute -> the dimension of the weight that it follows in a thin copy."""
    if isinstance(module, nn.modules.conv._ConvNd):
        turned = int(module.transposed)
        if module.groups == 1:
            return {"out_channels": turned, "in_channels": 1 - turned}
        return {"in_channels": 0, **({} if turned else {"out_channels": 0, "groups": 0})}
    if isinstance(module, nn.Linear):
        return {"out_features": 0, "in_features": 1}
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return {"num_features": 0}
    if isinstance(module, nn.GroupNorm):
        return {"num_channels": 0, "num_groups": 0}
    return {"num_parameters": 0} if isinstance(module, nn.PReLU) else {}
