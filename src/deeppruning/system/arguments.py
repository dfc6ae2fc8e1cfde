"""What a public function is called with, held against its signature: names first, then kinds.

>>> @check_arguments
... def bake(loaves: int, oven: str | None = None) -> None: ...
>>> bake(2, ofen="hot")
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: unknown parameter of bake 'ofen'; did you mean oven? Known: loaves, oven
>>> bake("two")
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: loaves must be a whole number, got 'two' (str)
"""

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from deeppruning.errors import InputError, unknown

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

_SHOWN_AT_MOST = 60  # characters of a value that is not what it should be
_WORDS: dict[Any, str] = {
    NoneType: "None",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    Mapping: "a dict",
    Callable: "a function",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
_OF_TORCH = {"Module": "a torch.nn.Module", "Tensor": "a torch.Tensor"}  # which is not loaded for a word


def check_arguments(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """The same function, which refuses a misspelt parameter and a value of another kind than annotated."""
    signature = inspect.signature(function)

    @functools.cache
    def kinds() -> dict[str, Any]:  # asked for late: names may be defined below
        return get_type_hints(function)

    @functools.wraps(function)
    def checked(*args: Given.args, **options: Given.kwargs) -> Returned:
        for name in options:
            if name not in signature.parameters:
                raise unknown(f"parameter of {function.__name__}", name, signature.parameters)
        for name, value in signature.bind(*args, **options).arguments.items():
            allowed = _members(kinds().get(name, Any))
            if not any(_is_of(value, kind) for kind in allowed):
                wanted = " or ".join(dict.fromkeys(map(_word, allowed)))
                raise InputError(f"{name} must be {wanted}, got {_shown(value, allowed)}")
        return function(*args, **options)

    return checked


def _members(kind: Any) -> list[Any]:
    """The kinds that a union allows."""
    if get_origin(kind) in (Union, UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    return [kind]


def _is_of(value: Any, annotated: Any) -> bool:
    kind = get_origin(annotated) or annotated
    if kind is Any or kind.__module__ == "numpy":  # whatever an array can be made of
        return True
    if kind in (int, float):
        wanted = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, wanted) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, os.PathLike)
    if kind in (Sequence, Iterable) and isinstance(value, (str, list, tuple)):
        (entry,) = get_args(annotated)
        return not isinstance(value, str) and all(_is_of(one, entry) for one in value)
    return isinstance(value, kind)


def _shown(value: Any, allowed: list[Any]) -> str:
    """The value with its type; and of a dict of options how they are written."""
    text = repr(value)
    text = text if len(text) <= _SHOWN_AT_MOST else f"{text[:_SHOWN_AT_MOST]}..."
    options = next((kind for kind in allowed if is_dataclass(kind) and isinstance(value, dict)), None)
    written = "" if options is None else f"; write {_word(options).split()[-1]}(name=value, ...)"
    return f"{text} ({type(value).__name__}){written}"


def _word(annotated: Any) -> str:
    kind = get_origin(annotated) or annotated
    if kind in (Sequence, Iterable):
        return f"a list of {_PLURALS[get_args(annotated)[0]]}"
    found = _WORDS.get(kind) or _OF_TORCH.get(kind.__name__)
    return found or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
