"""Following a run: every operation and every submodule, however the forward method is written.

Nothing is left to chance: uninitialised memory and random draws would differ in every process and with every
size, so that a thin network could not be compared with the full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

# Added to the seeds of followed runs: forward code that sets a seed of its own is recognised by another one.
# Even, and the first draws of it and of the next lie far apart: a structure that is drawn shows.
FOLLOWED_SEED = 0x5EED_0054
UNINITIALISED = frozenset(
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted".split()  # noqa: SIM905
)


# Operations that return numbers to Python, by the name that users know.
NUMBERS = {"_local_scalar_dense": "item", "equal": "equal", "allclose": "allclose"}
Number = bool | int | float | complex | None  # None: any


def operation_name(func: Any) -> str:
    """The name without overload and without the trailing underscore of in-place forms."""
    name: str = func._schema.name
    return name.removeprefix("aten::").rstrip("_")


def by_name(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the operation's schema, defaults left out."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation; uninitialised memory is filled with ones, and a random draw gives one number."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return _draw(func, args, kwargs)
    result = func(*args, **kwargs)
    if operation_name(func) in UNINITIALISED:
        result.fill_(1)
    return result


def is_blank_safe(func: Any) -> bool:
    """Whether the shapes and the course of a run cannot depend on the values that this operation sees."""
    own = func._schema.name.startswith("aten::")  # operations of others are not tagged
    tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    return own and not tags & {*func.tags}


def execute_blank(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation whose values do not matter: the result of a convolution is zeros of its shape.

    Only for runs of which a trace has shown that nothing depends on values.
    """
    if operation_name(func) != "convolution" or not all(
        x.is_contiguous() for x in tensors_in((args, kwargs))
    ):
        return execute(func, args, kwargs)
    given = by_name(func, args, kwargs)
    x, weight = given["input"], given["weight"]
    if x.ndim != weight.ndim or given["transposed"]:
        return execute(func, args, kwargs)
    kernels, extents = weight.shape[2:], x.shape[2:]
    moves = (_each(given[name], len(extents)) for name in ("stride", "padding", "dilation"))
    made = [
        (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for extent, kernel, stride, padding, dilation in zip(extents, kernels, *moves, strict=True)
    ]
    return torch.zeros((len(x), len(weight), *made), dtype=x.dtype, device=x.device)


def _each(values: Sequence[int], count: int) -> list[int]:
    """One number a dimension, where a single one may stand for all."""
    return [*values] * (count if len(values) == 1 else 1)


def _draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A draw with the same value at all positions, whatever the size, from the seed of the run.

    Dropout drops nothing: zeros would hide what they are multiplied with. Where the forward code sets the
    seed, or draws from a generator of its own, it makes a constant: its values count.
    """
    name, given = operation_name(func), by_name(func, args, kwargs)
    if given.get("generator") is not None or torch.initial_seed() & ~1 != FOLLOWED_SEED:
        return func(*args, **kwargs)
    state = torch.get_rng_state()
    result = func(*args, **kwargs)
    torch.set_rng_state(state)
    share, deviation = float(torch.rand((), dtype=torch.float64)), float(torch.randn((), dtype=torch.float64))
    if name == "bernoulli":
        result.fill_(1)
    elif name == "native_dropout" and given["train"] is not False:
        result[0].copy_(given["input"])
        result[1].fill_(1)
    elif name in ("rand", "rand_like", "uniform", "randint", "randint_like"):
        low, high = given.get("low", given.get("from", 0)), given.get("high", given.get("to", 1))
        result.fill_(low + share * (high - low))  # integers are rounded down
    elif name in ("randn", "randn_like", "normal"):
        result.copy_(given.get("mean", 0) + given.get("std", 1) * torch.full_like(result, deviation))
    elif isinstance(result, Tensor) and func._schema.is_mutable and result.numel():
        result.fill_(result.reshape(-1)[0])
    return result


class Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Base of all followed runs (`TorchDispatchMode`): sees what is executed, however it is written.

    `detached` names parameter-free submodules that count as one operation each and are not followed inside.
    """

    def __init__(self, model: nn.Module, detached: frozenset[str] = frozenset()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = {id(module): name for name, module in model.named_modules()}
        self.detached = detached
        self.stack: list[tuple[str, nn.Module]] = []
        self.inside_detached = 0
        self.numbers: list[Number] = []  # that the forward code has taken out of tensors
        self.replayed: Sequence[Number] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch imports its compiler only to switch it off, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # operations then arrive whole that are decomposed elsewhere
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if self.inside_detached:
            return self.hidden_operation(func, args, kwargs)
        result = self.operation(func, args, kwargs)
        if isinstance(result, (bool, int, float, complex)) and operation_name(func) in NUMBERS:
            return self.taken_out(result, tensors_in(args))
        return result

    def taken_out(self, number: Number, tensors: list[Tensor]) -> Number:
        """A number leaves the tensors; the code gets that of the traced run, so that it goes the same way."""
        self.numbers.append(number)
        place = len(self.numbers) - 1
        given = self.replayed[place] if place < len(self.replayed) else None
        return number if given is None else given

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation."""
        return execute(func, args, kwargs)

    def hidden_operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation inside a detached submodule."""
        return execute(func, args, kwargs)

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A detached submodule ends; what is returned (unless None) replaces its output."""

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A submodule starts."""
        name = self.names.get(id(module), "")
        self.stack.append((name, module))
        self.inside_detached += name in self.detached

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends."""
        name, _ = self.stack.pop()
        if name not in self.detached:
            return None
        self.inside_detached -= 1
        if self.inside_detached:
            return None
        with _disable_current_modes():  # operations in here are not the network's
            return self.detached_module(name, module, inputs, output)

    def run(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the model without gradients under this follower."""
        with torch.no_grad(), follow_modules(self.enter, self.leave), self:
            return model(*args, **kwargs)


class OperationList(Follower):
    """Records only the names of operations and the shapes of their results."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.operations: list[tuple[str, list[tuple[int, ...]]]] = []

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and record its name and shapes."""
        result = execute(func, args, kwargs)
        outputs = tensors_in(result)
        if outputs:
            self.operations.append((operation_name(func), [tuple(tensor.shape) for tensor in outputs]))
        return result


@contextmanager
def follow_modules(enter: Callable[..., Any], leave: Callable[..., Any]) -> Iterator[None]:
    """Call back whenever any submodule starts or ends, without changing the network."""
    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, in order, including containers, dataclasses and attributes of objects."""
    if isinstance(value, Tensor):
        return [value]
    tensors: list[Tensor] = []
    _collect(value, tensors, set())
    return tensors


def _collect(value: Any, tensors: list[Tensor], seen: set[int]) -> None:
    """Add the tensors in a value to a list, each object once."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
        elif not isinstance(leaf, (nn.Module, type)) and id(leaf) not in seen:
            seen.add(id(leaf))
            _collect(_held_by(leaf), tensors, seen)


def _held_by(value: Any) -> list[Any]:
    """The items of a custom container, or the attributes of any other object."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (tuple, list)):
        return list(value)
    listed = [kind.__dict__.get("__slots__", ()) for kind in reversed(type(value).__mro__)]
    names = [name for slots in listed for name in ((slots,) if isinstance(slots, str) else slots)]
    return [*(getattr(value, name, None) for name in names), *getattr(value, "__dict__", {}).values()]
