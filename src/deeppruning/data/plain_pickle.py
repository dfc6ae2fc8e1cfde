"""Read a pickle that holds plain values and byte arrays, and refuse any other without running it.

CIFAR's "python version" is a pickle, and a pickle may call any function. Here only the four names that a
byte array needs are allowed, and each is replaced by a harmless class or function of this file: not even
numpy's own are called.

>>> load_plain(pickle.dumps({"labels": [1, 2]}), "example")
{'labels': [1, 2]}
>>> load_plain(pickle.dumps(len), "example")
Traceback (most recent call last):
    ...
deeppruning.errors.DataError: example asks for builtins.len, which no data file needs; it may be \
malicious, nothing of it was run; get the file from its official site
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np
import numpy.typing as npt

from deeppruning.errors import DataError


class _Dtype:
    """Replaces numpy.dtype: keeps the code, ignores the rest of the state."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and flags do not matter for bytes."""


class _ByteArray:
    """Replaces an array under reconstruction: keeps shape and bytes."""

    array: npt.NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or dtype.code != "u1" or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that does not hold bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _NdarrayName:
    """Replaces numpy.ndarray, which the file only passes as an argument."""


def _unpickle_byte_array(*_: Any) -> _ByteArray:
    return _ByteArray()


def _unpickle_bytes(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _unpickle_byte_array,
    ("numpy._core.multiarray", "_reconstruct"): _unpickle_byte_array,
    ("numpy", "ndarray"): _NdarrayName,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _unpickle_bytes,
}


MOST_TUPLES = 1000  # a data file has ten; deeply nested ones would exhaust the stack when hashed


def _check_opcodes(raw: bytes) -> None:
    """Refuse what makes the reader itself use memory: a memo index far beyond the file's length."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(raw):
            raise pickle.UnpicklingError(f"a memo of {argument} entries")
        tuples += opcode.name.startswith("TUPLE")
        if tuples > MOST_TUPLES:
            raise pickle.UnpicklingError(f"more than {MOST_TUPLES} tuples")


class _Refused(Exception):
    """A name outside of the list above."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """One of the few classes that plain values need; any other is refused."""
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


def load_plain(raw: bytes, source: str) -> Any:
    """The value in a pickle; byte arrays at the top level of a dictionary become numpy arrays.

    Strings of Python 2 are read as bytes. `source` names the file in errors.
    """
    try:
        _check_opcodes(raw)
        value = _PlainUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except _Refused as refused:
        raise DataError(
            f"{source} asks for {refused}, which no data file needs; it may be malicious, nothing of it was "
            "run; get the file from its official site"
        ) from None
    except Exception as error:
        # A damaged pickle can raise nearly anything.
        raise DataError(
            f"{source} ({len(raw)} bytes) is not a complete data file: {error or type(error).__name__}; "
            "it may be cut short; get it again"
        ) from error
    if isinstance(value, dict):
        return {key: item.array if isinstance(item, _ByteArray) else item for key, item in value.items()}
    return value
