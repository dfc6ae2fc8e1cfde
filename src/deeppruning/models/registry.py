"""The registry of networks: a decorated builder's function name is its name on the command line."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from deeppruning.errors import InputError, unknown

SMALLEST_IMAGE = 8
# Bounds of what a file may ask for; the widest of all known tasks has 21,841 classes.
LARGEST_TASK = {"num_classes": 100_000, "in_channels": 4_096, "image_size": 16_384}
MOST_PARAMETERS = 500_000_000
TASK_ARGUMENTS = ("num_classes", "in_channels", "image_size")

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])
_BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def register_model(builder: Builder) -> Builder:
    """Enter a builder under its function name; it declares whichever task arguments it needs.

    Its other arguments are the network's options, and its docstring is the line `models` prints.
    """
    name = builder.__name__
    if name in _BUILDERS:
        raise InputError(f"a model named {name!r} is registered already; give the function another name")
    _BUILDERS[name] = builder
    return builder


def list_models() -> list[str]:
    """Every name that `create_model` knows, sorted so that resnet20 comes before resnet110."""
    return sorted(_BUILDERS, key=lambda name: (name.rstrip("0123456789"), len(name), name))


def about_model(name: str) -> str:
    """One line on what a network is: the first of its builder's docstring."""
    return (inspect.getdoc(_builder(name)) or "").split("\n")[0]


def create_model(
    name: str, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32, **options: Any
) -> nn.Module:
    """A freshly drawn network of the zoo for these images; options as its builder declares them.

    What it was called with stays on the network as `architecture`, so that a saved one can be rebuilt.
    """
    task = check_task(num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    try:
        model = call_builder(name, _builder(name), task, options)
    except (TypeError, AttributeError) as error:
        raise InputError(f"{name} cannot be made with the options {options}: {error}") from error
    model.__dict__["architecture"] = {"name": name, **task, **options}  # plain data, not a submodule
    return model


def create_bounded_model(name: str, **arguments: Any) -> nn.Module:
    """`create_model` for arguments out of a file: one that asks for a vast network gets an error instead."""
    with torch.device("meta"):  # shapes without memory
        count = sum(parameter.numel() for parameter in create_model(name, **arguments).parameters())
    if count > MOST_PARAMETERS:
        raise InputError(f"{name} would have {count:,} parameters; at most {MOST_PARAMETERS:,} are made")
    return create_model(name, **arguments)


def architecture_of(model: nn.Module) -> dict[str, Any] | None:
    """What `create_model` was called with to make this network; None for a network from elsewhere."""
    found = getattr(model, "architecture", None)
    return dict(found) if isinstance(found, dict) and found.get("name") in _BUILDERS else None


def check_task(*, num_classes: int, in_channels: int, image_size: int) -> dict[str, int]:
    """The task arguments as a table, refused when no network could be built for them."""
    task = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    for argument, value in task.items():
        least = SMALLEST_IMAGE if argument == "image_size" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{argument} must be a whole number of at least {least}, got {value!r}")
        if value > LARGEST_TASK[argument]:
            raise InputError(f"{argument} must be at most {LARGEST_TASK[argument]:,}, got {value:,}")
    return task


def call_builder(
    name: str, builder: Callable[..., nn.Module], task: dict[str, int], options: dict[str, Any]
) -> nn.Module:
    """Call a builder with the task arguments it declares and with options it is known to take."""
    parameters = inspect.signature(builder).parameters.values()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    declared = [parameter.name for parameter in parameters if parameter.kind in by_name]
    allowed = [argument for argument in declared if argument not in TASK_ARGUMENTS]
    for option in options:
        if option not in allowed and not open_ended:
            if not allowed:
                raise InputError(f"{name} takes no options, got {option!r}; leave it out")
            raise unknown(f"option of {name}", option, allowed)
    known = {key: value for key, value in task.items() if key in declared or open_ended}
    return builder(**{**known, **options})


def _builder(name: str) -> Callable[..., nn.Module]:
    if name not in _BUILDERS:
        raise unknown("model", name, _BUILDERS)
    return _BUILDERS[name]
