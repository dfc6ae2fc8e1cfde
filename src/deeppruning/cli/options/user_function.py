"""A function of the user's own, named on the command line as package.module:function or file.py:function."""

from collections.abc import Callable
from typing import Any

from deeppruning.errors import InputError, unknown
from deeppruning.models.resolve import load_module


def load_function(spec: str, kind: str) -> Callable[..., Any]:
    """The function that `spec` names; naming it runs the code of its file, as importing it would."""
    source, _, name = spec.rpartition(":")
    forms = f"{kind} functions are given as package.module:function or path/to/file.py:function"
    if not source or not name:
        raise InputError(f"{kind} {spec!r} is not of a known form; {forms}")
    module = load_module(source, forms)
    function = getattr(module, name, None)
    if function is None:
        offered = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"function in {source}", name, offered or ["(no function is defined there)"])
    if not callable(function):
        raise InputError(f"{kind} {spec} is {type(function).__name__!r}, not a function")
    return function  # type: ignore[no-any-return]
