"""TOML files, also from untrusted sources: those nested too deeply or too large are refused before parsing.

Python's parser needs memory quadratic in the parts of a dotted key, and recurses at every bracket.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

LARGEST = 1 << 20  # bytes; our own files have about a thousand
DEEPEST = 32  # parts of a dotted key, or brackets within brackets
LARGEST_NUMBER = 1 << 63  # the limit of TOML; Python has none

# Strings and comments are skipped, dots and brackets counted. An unterminated string extends to where the
# parser will stop, so that every character is looked at once.
_TOKENS = re.compile(
    r'''"""(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)|"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\\?\Z)'''
    r"""|'''.*?(?:'{3,5}|\Z)|'[^'\n]*'?|#[^\n]*|[^"'#.\[\]{},\n]+|.""",
    re.DOTALL,
)


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a file; raises OSError if it cannot be read, ValueError if it is not valid.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.toml"
    >>> _ = file.write_text("a" + ".a" * 1000 + " = 1")
    >>> read_toml(file)
    Traceback (most recent call last):
        ...
    ValueError: it nests deeper than 32 levels
    """
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes, too large for a file of options")
    return parse_toml(path.read_text(encoding="utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in a text; raises ValueError if it is not valid."""
    _check_depth(text)
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_toml_numbers(tables)
    return tables


def _check_depth(text: str) -> None:
    """Refuse keys of too many parts and brackets nested too deeply, the parts of their keys included."""
    dots, outside = 0, [0]
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token == ".":
            dots += 1
        elif token in ("[", "{"):
            outside.append(outside[-1] + dots + 1)
            dots = 0
        elif token in ("]", "}"):
            outside = outside[:-1] or [0]
            dots = 0
        elif token in (",", "\n"):
            dots = 0
        if outside[-1] + dots >= DEEPEST:
            raise ValueError(f"it nests deeper than {DEEPEST} levels")


def _check_toml_numbers(value: Any) -> None:
    if isinstance(value, int) and not -LARGEST_NUMBER <= value < LARGEST_NUMBER:
        raise ValueError("it holds a whole number of more than 64 bits")
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_toml_numbers(entry)


def without_none(value: Any) -> Any:
    """Tables as TOML, which has no null, can hold them: options that are None are left out."""
    if isinstance(value, Mapping):
        return {key: without_none(entry) for key, entry in value.items() if entry is not None}
    return value
