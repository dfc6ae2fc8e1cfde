"""How a method is entered, and found by its name."""

import importlib.util
from collections.abc import Sequence
from typing import TypeVar

from deeppruning.comparison.problem import Method
from deeppruning.errors import InputError, unknown
from deeppruning.registry import Registry
from deeppruning.system.commands import how_to_install

# What is asked unless others are named: what a refit, a guided search and the paper's search are worth.
USUAL = ("l1", "thinet", "l1+refit", "guided", "random-widths", "es-plus")
METHODS: Registry[Method] = Registry("method", "deeppruning.comparison.methods")
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
    return [method for name, method in METHODS.items() if name in listed or "all" in listed]


def usable_methods(names: str | Sequence[str]) -> tuple[list[str], str]:
    """The names of those methods that can run here, and a note on the others; an error where none can."""
    chosen = choose_methods(names)
    lacking: dict[str, list[str]] = {}
    for method in chosen:
        if method.needs is not None and importlib.util.find_spec(method.needs) is None:
            lacking.setdefault(method.needs, []).append(method.name)
    note = "; ".join(
        f"{', '.join(names)} {'needs' if len(names) == 1 else 'need'} {package}: {how_to_install(package)}"
        for package, names in lacking.items()
    )
    left_out = [name for names in lacking.values() for name in names]
    if len(left_out) == len(chosen):
        raise InputError(f"no method that is named can run here: {note}, or name other methods")
    return [method.name for method in chosen if method.name not in left_out], note and f"left out: {note}"
