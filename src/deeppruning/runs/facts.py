"""The facts of a run's history as JSON, and the shape of those that are read by name.

>>> parse_fact("original", '{"train_error": 0.1, "flops": 12}')
Traceback (most recent call last):
    ...
ValueError: the fact 'original' lacks a whole number 'params'
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

_COUNTS = ("flops", "params")
_ERRORS = ("train_error", "test_error")


def parse_fact(key: str, text: str) -> Any:
    """The value of a fact; one that is no JSON or not of its shape raises an error of Python's own."""
    value = json.loads(text, parse_constant=_refuse)
    if key == "original":
        _check_figures(key, value)
    elif key.startswith("solution/"):
        _check_figures(key, value, counts=("id", *_COUNTS), numbers=("flops_pruned",))
    elif key == "latency_batch_1":
        _table(key, value)
        _check_numbers(key, value, tuple(value))
    elif key == "layers":
        for genes in _table(key, value).values():
            if not isinstance(genes, int) and not _are_genes(genes):
                raise ValueError(f"the fact {key!r} has genes that are no whole numbers")
    elif key == "branches":
        for sets in _table(key, value).values():
            if not isinstance(sets, list) or not all(map(_are_genes, sets)):
                raise ValueError(f"the fact {key!r} has genes that are no whole numbers")
    elif key == "versions":
        _table(key, value)
    return value


def _are_genes(value: Any) -> bool:
    return isinstance(value, list) and all(type(gene) is int and abs(gene) < 2**31 for gene in value)


def _check_figures(
    key: str, value: Any, counts: tuple[str, ...] = _COUNTS, numbers: tuple[str, ...] = ()
) -> None:
    table = _table(key, value)
    for name in counts:
        if type(table.get(name)) is not int or table[name] < 0:
            raise ValueError(f"the fact {key!r} lacks a whole number {name!r}")
    _check_numbers(key, table, numbers)
    # A task of the user's own may have no errors to tell.
    _check_numbers(key, table, tuple(name for name in _ERRORS if table.get(name) is not None))


def _check_numbers(key: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if type(table.get(name)) not in (int, float) or not math.isfinite(table[name]):
            raise ValueError(f"the fact {key!r} has no number for {name!r}")


def _table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"the fact {key!r} is {type(value).__name__}, not a table")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
