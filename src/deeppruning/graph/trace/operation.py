"""One operation of a run: its name, its arguments, and its execution with nothing left to chance.

Uninitialised memory and random draws hold other values in every process, and draws depend on sizes: a thin
network could not be compared with the full one, nor a graph be built twice alike.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

UNINITIALISED = frozenset(
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted".split()  # noqa: SIM905
)


def operation_name(func: Any) -> str:
    """The name without overload and without the trailing underscore of in-place forms."""
    name: str = func._schema.name
    return name.removeprefix("aten::").rstrip("_")


def by_name(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the operation's schema, defaults left out."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation; memory that it leaves uninitialised holds ones, and what it draws is one number."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return _draw(func, args, kwargs)
    result = func(*args, **kwargs)
    if operation_name(func) in UNINITIALISED:
        result.fill_(1)
    return result


def _draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A draw that is alike at all positions and the same whatever the size, from the seed of the run.

    Nothing is dropped: zeros would hide what they are multiplied with.
    """
    state = torch.get_rng_state()
    result = func(*args, **kwargs)
    torch.set_rng_state(state)
    share, deviation = float(torch.rand((), dtype=torch.float64)), float(torch.randn((), dtype=torch.float64))
    name, given = operation_name(func), by_name(func, args, kwargs)
    if name == "bernoulli":
        result.fill_(1)
    elif name == "native_dropout" and given["train"] is not False:
        result[0].copy_(given["input"])
        result[1].fill_(1)
    elif name in ("rand", "rand_like", "uniform", "randint", "randint_like"):
        low, high = given.get("low", given.get("from", 0)), given.get("high", given.get("to", 1))
        result.fill_(low + share * (high - low))  # whole numbers are rounded down
    elif name in ("randn", "randn_like", "normal"):
        result.copy_(given.get("mean", 0) + given.get("std", 1) * torch.full_like(result, deviation))
    elif isinstance(result, Tensor) and func._schema.is_mutable and result.numel():
        result.fill_(result.reshape(-1)[0])
    return result
