"""Networks by name: those of the zoo, of other libraries, and those built by a user's factory.

A builder decorated with `register_model` is known by the name of its function.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils.flop_counter import FlopCounterMode

from deeppruning.errors import InputError, unknown
from deeppruning.models.libraries import build_from_library, is_library_name
from deeppruning.system.commands import command
from deeppruning.system.user_code import load_function, user_errors

SMALLEST_IMAGE = 8
# Limits of what a file may request; the largest of the usual tasks has 21,841 classes.
LARGEST_TASK = {"num_classes": 100_000, "in_channels": 4_096, "image_size": 16_384}
MOST_PARAMETERS = 500_000_000
WEIGHTED_OPERATIONS = ("ConvolutionBackward0", "AddmmBackward0", "MmBackward0")

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])
_BUILDERS: dict[str, Callable[..., nn.Module]] = {}


def register_model(builder: Builder) -> Builder:
    """Register a builder under the name of its function.

    It declares those of num_classes, in_channels and image_size that it needs. Its other arguments are the
    options of the network, and its docstring is the line that `deeppruning models` prints.
    """
    name = builder.__name__
    if name in _BUILDERS:
        raise InputError(f"a model named {name!r} is registered already; give the function another name")
    _BUILDERS[name] = builder
    return builder


def list_models() -> list[str]:
    """All names that `create_model` accepts, sorted so that resnet20 comes before resnet110."""
    return sorted(_BUILDERS, key=lambda name: (name.rstrip("0123456789"), len(name), name))


def about_model(name: str) -> str:
    """A one-line description of a network: the first line of its builder's docstring."""
    return (inspect.getdoc(_builder_named(name)) or "").split("\n")[0]


def create_model(
    name: str, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32, **options: Any
) -> nn.Module:
    """A network of the zoo with fresh weights; `options` are those its builder declares.

    "timm:NAME" and "torchvision:NAME" are networks of these libraries, where they are installed. The
    arguments are stored on the network as `architecture`, so that a saved one can be rebuilt.
    """
    task = _checked_task(num_classes, in_channels, image_size)
    try:
        if is_library_name(name):
            model = build_from_library(name, task, options)
        else:
            model = _call_builder(name, _builder_named(name), task, options)
    except (TypeError, AttributeError) as error:
        raise InputError(f"{name} cannot be built with the options {options}: {error}") from error
    model.__dict__["architecture"] = {"name": name, **task, **options}  # plain data, not a submodule
    return model


def create_bounded_model(name: str, **arguments: Any) -> nn.Module:
    """`create_model` for arguments read from a file: raises InputError if the network would be huge."""
    with torch.device("meta"):  # shapes without memory
        count = sum(parameter.numel() for parameter in create_model(name, **arguments).parameters())
    if count > MOST_PARAMETERS:
        raise InputError(f"{name} would have {count:,} parameters; at most {MOST_PARAMETERS:,} are allowed")
    return create_model(name, **arguments)


def architecture_of(model: nn.Module) -> dict[str, Any] | None:
    """The arguments of `create_model` that built this network; None for a network from elsewhere."""
    arguments = getattr(model, "architecture", None)
    name = arguments.get("name") if isinstance(arguments, dict) else None
    return dict(arguments) if arguments and (name in _BUILDERS or is_library_name(name)) else None


def resolve_model(
    spec: str, *, num_classes: int, in_channels: int, image_size: int, **options: Any
) -> nn.Module:
    """The network that `spec` names: a zoo name, `timm:NAME`, `torchvision:NAME` or a user's factory.

    A factory is `package.module:factory` or `path/to/file.py:factory`. It gets those of
    num_classes, in_channels and image_size that its signature declares. Naming one runs the user's code in
    that file, as importing it would.
    """
    task = _checked_task(num_classes, in_channels, image_size)
    if ":" not in spec or is_library_name(spec):
        if spec.endswith(".py"):
            raise InputError(f"{spec!r} does not say which function makes the network; write {spec}:factory")
        return create_model(spec, **task, **options)
    factory = load_function(spec, "model", f"a name from `{command('models')}`, ")
    if isinstance(factory, nn.Module):
        raise InputError(
            f"{spec} is of type {type(factory).__name__!r}, not a factory; "
            "name a function or class that returns the network when called"
        )
    with user_errors(spec):
        model = _call_builder(spec, factory, task, options)
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec} must return a torch.nn.Module, it returned {type(model).__name__}")
    return model


def _checked_task(num_classes: int, in_channels: int, image_size: int) -> dict[str, int]:
    """The task arguments by name; raises InputError if no network could be built for them."""
    task = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    for argument, value in task.items():
        least = SMALLEST_IMAGE if argument == "image_size" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{argument} must be a whole number of at least {least}, got {value!r}")
        if value > LARGEST_TASK[argument]:
            raise InputError(f"{argument} must be at most {LARGEST_TASK[argument]:,}, got {value:,}")
    return task


def _call_builder(
    name: str, builder: Callable[..., nn.Module], task: dict[str, int], options: dict[str, Any]
) -> nn.Module:
    """Call a builder with the task arguments it declares; raises InputError for options it does not take."""
    parameters = inspect.signature(builder).parameters.values()
    # A class without a constructor has that of Module, whose signature is open though it takes nothing.
    bare = getattr(builder, "__init__", None) is nn.Module.__init__
    open_ended = not bare and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    declared = [parameter.name for parameter in parameters if parameter.kind in by_name]
    allowed = [argument for argument in declared if argument not in task]
    for option in options:
        if option not in allowed and not open_ended:
            if not allowed:
                raise InputError(f"{name} takes no options, got {option!r}; leave it out")
            raise unknown(f"option of {name}", option, allowed)
    needed = {key: value for key, value in task.items() if key in declared or open_ended}
    return builder(**{**needed, **options})


def _builder_named(name: str) -> Callable[..., nn.Module]:
    if name not in _BUILDERS:
        raise unknown("model", name, _BUILDERS)
    return _BUILDERS[name]


@dataclass(frozen=True)
class ModelSummary:
    """Size and cost of a network; depth counts the convolutions and linear layers on the longest path."""

    name: str
    depth: int
    params: int
    flops: int  # multiply-adds of convolutions and linear layers for one image
    about: str


def describe_model(
    name: str, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32, **options: Any
) -> ModelSummary:
    """Measure a network on one blank image; the global random state is left as it was."""
    # Real tensors, because torch's meta device takes longer than computing one image.
    with torch.random.fork_rng(devices=[]):
        model = create_model(
            name, num_classes=num_classes, in_channels=in_channels, image_size=image_size, **options
        ).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        logits: Tensor = model(torch.zeros(1, in_channels, image_size, image_size))
    return ModelSummary(
        name=name,
        depth=_depth_of_output(logits),
        params=sum(parameter.numel() for parameter in model.parameters()),
        # The counter counts a multiply-add as two operations.
        flops=counter.get_total_flops() // 2,
        about=about_model(name),
    )


def _depth_of_output(output: Tensor) -> int:
    """The largest number of layers with weights on a way to this output."""
    assert output.grad_fn is not None
    feeders: dict[Node, list[Node]] = {}
    waiting: list[Node] = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in feeders:
            feeders[node] = [feeder for feeder, _ in node.next_functions if feeder is not None]
            waiting += feeders[node]
    depth: dict[Node, int] = {}
    for node in TopologicalSorter(feeders).static_order():
        depth[node] = max((depth[feeder] for feeder in feeders[node]), default=0)
        depth[node] += node.name() in WEIGHTED_OPERATIONS
    return depth[output.grad_fn]
