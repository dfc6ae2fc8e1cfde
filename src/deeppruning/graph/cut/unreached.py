"""Layers that no example input reached: a thin network says so where another input leads to them."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from deeppruning.errors import GraphError


class Unreached:
    """A hook that runs before such a layer: its weights have the full width, its input may be thinner."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Refuse an input with another number of channels than the layer reads."""
        expected, given = _width_read(module), _width_given(module, inputs)
        if expected is not None and given is not None and given != expected:
            raise GraphError(
                f"{self.name} reads {expected} channels and is given {given}: it did not run on the example "
                "input with which this network was thinned, so its weights were not cut. Build the graph "
                f"with an example input that leads to {self.name}, or exclude the layers before it"
            )


def _width_read(module: nn.Module) -> int | None:
    """The number of channels that a layer's full weight reads."""
    for name in ("in_channels", "in_features", "num_features", "num_channels"):
        if isinstance(width := getattr(module, name, None), int):
            return width
    return None


def _width_given(module: nn.Module, inputs: tuple[Any, ...]) -> int | None:
    """Along the channels: the last dimension of a linear layer's input, otherwise that before the map."""
    if not inputs or not isinstance(inputs[0], Tensor):
        return None
    shape = inputs[0].shape
    spatial = len(getattr(module, "kernel_size", ()))
    place = -1 if isinstance(module, nn.Linear) else len(shape) - 1 - spatial if spatial else 1
    return int(shape[place]) if -len(shape) <= place < len(shape) else None


def guard(thin: nn.Module, names: Sequence[str]) -> None:
    """Set the hook, in place, before each of these layers."""
    modules = dict(thin.named_modules()) if names else {}
    for name in names:
        module = modules.get(name)
        if module is None:
            continue
        hooks = module._forward_pre_hooks.values()
        if not any(isinstance(hook, Unreached) for hook in hooks):  # from an earlier cut
            module.register_forward_pre_hook(Unreached(name))
