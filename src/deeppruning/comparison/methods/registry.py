"""How a method is entered, and found by its name."""

import importlib.util
from collections.abc import Sequence
from typing import TypeVar

from deeppruning.comparison.problem import Method
from deeppruning.errors import InputError, unknown
from deeppruning.registry import METHODS

# What is asked unless others are named: what a refit, a guided search and the paper's search are worth.
USUAL = ("l1", "thinet", "l1+refit", "guided", "random-widths", "es-plus")
Class = TypeVar("Class", bound=type[Method])


def register_method(method: Class) -> Class:
    """Enter a method under its name."""
    METHODS.add(method())
    return method


def choose_methods(names: str | Sequence[str]) -> list[Method]:
    """The methods of these names (a list, or one text with commas) in the registry's order; "all" is all."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for name in listed:
        if name != "all" and name not in METHODS:
            raise unknown("method", name, ("all", *METHODS))
    if not listed:
        raise InputError(f"no method is named; choose among all, {', '.join(METHODS)}")
    chosen = [method for name, method in METHODS.items() if name in listed or "all" in listed]
    for method in chosen:
        if method.needs is not None and importlib.util.find_spec(method.needs) is None:
            raise InputError(
                f"the method {method.name} needs {method.needs}: install it with "
                "`pip install 'deeppruning-es[rivals]'`, or name other methods"
            )
    return chosen
