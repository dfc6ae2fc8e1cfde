"""The inputs of an ONNX file, from a folder of pictures, an .npz or .npy file, or a function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.errors import DAMAGE, DataError, InputError
from deeppruning.graph.calls import as_call
from deeppruning.importing.file import FileValue
from deeppruning.searching.unlabelled import gather_inputs
from deeppruning.system.user_code import load_function, user_errors
from deeppruning.thinning.pictures import PictureOptions, read_pictures

ARRAYS = (".npz", ".npy")
NamedInputs = dict[str, Tensor]  # by the names of the file, each with all inputs along its first axis
__all__ = ["NamedInputs", "PictureOptions", "count_of", "read_inputs", "rows_of"]


def read_inputs(source: Any, wanted: Sequence[FileValue], pictures: PictureOptions, most: int) -> NamedInputs:
    """At most so many inputs, evenly spread over those there are, as the file takes them."""
    if isinstance(source, (str, Path)):
        given = _named(str(source), wanted, pictures, most)
    else:
        given = gather_inputs(_tensors(source), most)
    try:
        inputs = {
            value.name: _fitting(value, array)
            for value, array in zip(wanted, _by_name(given, wanted), strict=True)
        }
    except InputError as error:
        raise InputError(f"{source}: {error}" if isinstance(source, (str, Path)) else str(error)) from error
    counts = {name: len(tensor) for name, tensor in inputs.items()}
    if len(set(counts.values())) != 1:
        raise InputError(f"each input needs as many entries as the others, got {counts}")
    count = count_of(inputs)
    if count > most:
        places = torch.linspace(0, count - 1, most).long()
        inputs = {name: tensor[places] for name, tensor in inputs.items()}
    return inputs


def count_of(inputs: NamedInputs) -> int:
    """How many inputs there are."""
    return len(next(iter(inputs.values())))


def rows_of(inputs: NamedInputs, rows: Any) -> NamedInputs:
    """Some of them."""
    return {name: tensor[rows] for name, tensor in inputs.items()}


def _named(source: str, wanted: Sequence[FileValue], pictures: PictureOptions, most: int) -> Any:
    """The inputs from a source that is named by a text."""
    path = Path(source)
    if path.suffix.lower() in ARRAYS:
        return _read_arrays(path)
    if path.is_dir():
        if len(wanted) != 1:
            names = ", ".join(value.name for value in wanted)
            raise InputError(
                f"a folder of pictures is for one input; this file takes {names}: give an .npz file"
            )
        return read_pictures(path, wanted[0], pictures, most)
    if ":" in source:
        function = load_function(source, "inputs", "a folder of pictures, an .npz or .npy file, ")
        with user_errors(source):
            return gather_inputs(_tensors(function()), most)
    what = "is a file of another kind" if path.is_file() else "does not exist"
    raise InputError(f"{source} {what}; give a folder of pictures, an .npz or .npy file, or file.py:function")


def _read_arrays(path: Path) -> Any:
    """The arrays of an .npz or .npy file."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; give a folder of pictures, an .npz or .npy file")
    try:
        with path.open("rb") as file:
            read = np.load(file, allow_pickle=False)
            return dict(read) if isinstance(read, np.lib.npyio.NpzFile) else read
    except (*DAMAGE, OSError, EOFError, MemoryError) as error:
        raise DataError(f"{path} cannot be read as arrays ({error}); is it whole?") from error
    except Exception as error:  # zipfile has errors of its own
        raise DataError(f"{path} cannot be read as arrays ({error}); is it whole?") from error


def _tensors(given: Any) -> Any:
    """What a function returned, with arrays as tensors."""
    if isinstance(given, np.ndarray):
        return torch.from_numpy(given)
    if isinstance(given, Mapping):
        return {name: _tensors(value) for name, value in given.items()}
    if isinstance(given, (tuple, list)):
        return tuple(map(_tensors, given))
    return given


def _by_name(given: Any, wanted: Sequence[FileValue]) -> list[Any]:
    """The entries in the order of the file's inputs; names must be those of the file."""
    names = [value.name for value in wanted]
    if isinstance(given, np.ndarray):
        return [given] if len(names) == 1 else _by_name((given,), wanted)
    if isinstance(given, Mapping) and len(given) == len(names) == 1:
        return list(given.values())
    listed = dict(given) if isinstance(given, Mapping) else dict(enumerate(as_call(given)[0]))
    got = sorted(map(str, listed)) if isinstance(given, Mapping) else len(listed)
    if isinstance(given, Mapping) and listed.keys() == set(names):
        return [listed[name] for name in names]
    if not isinstance(given, Mapping) and len(listed) == len(names):
        return list(listed.values())
    saved = ", ".join(f"{name}=..." if name.isidentifier() else f"**{{{name!r}: ...}}" for name in names)
    raise InputError(
        f"the network takes an array for each of its inputs ({', '.join(names)}), got {got}; save them under "
        f"these names: np.savez('inputs.npz', {saved})"
    )


def _fitting(value: FileValue, given: Any) -> Tensor:
    """One input, in the file's type; sizes that the file fixes are checked."""
    array: NDArray[Any] = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise InputError(f"the input {value.name!r} must be numbers, got an array of {array.dtype}")
    shape = tuple(array.shape)
    expected = value.shape
    fits = expected is None or (
        len(shape) == len(expected)
        and all(
            not isinstance(size, int) or size == have
            for size, have in zip(expected[1:], shape[1:], strict=True)
        )
    )
    if not fits or not shape or math.prod(shape) == 0:
        raise InputError(
            f"the input {value.name!r} has the shape {_shown(expected)}, got an array of {_shown(shape)}, "
            f"where the first number counts the inputs; {_remedy(expected, shape)}"
        )
    if value.dtype.kind in "iu" and array.dtype.kind == "f" and not _whole(array, value.dtype):
        raise InputError(
            f"the input {value.name!r} takes whole numbers ({value.dtype}), got {array.dtype} from "
            f"{array.min():.4g} to {array.max():.4g}; give the array as {value.dtype}"
        )
    kind = np.dtype(np.float32) if value.dtype.name in ("float16", "bfloat16") else value.dtype
    tensor = torch.from_numpy(np.ascontiguousarray(array.astype(kind)))
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise InputError(
            f"the input {value.name!r} has values that are not finite (nan or inf); leave them out"
        )
    return tensor


def _remedy(expected: Sequence[Any] | None, shape: Sequence[int]) -> str:
    """What to do about an array of another shape: most often its channels are at the other end."""
    for order in ((0, 3, 1, 2), (0, 2, 3, 1)):
        if expected is not None and len(expected) == len(shape) == len(order):
            turned = [shape[place] for place in order][1:]
            if all(
                size in (have, None) or isinstance(size, str)
                for size, have in zip(expected[1:], turned, strict=True)
            ):
                return f"its axes are in another order: array.transpose{order}"
    return "prepare the inputs as the network takes them"


def _whole(array: NDArray[Any], kind: np.dtype[Any]) -> bool:
    """Whether floats are whole numbers that a type of integers has."""
    limits = np.iinfo(kind)
    return bool(
        np.isfinite(array).all()
        and (array == np.round(array)).all()
        and limits.min <= array.min()
        and array.max() <= limits.max
    )


def _shown(shape: Sequence[Any] | None) -> str:
    """The shape of an ONNX input in words."""
    return "any" if shape is None else "x".join("?" if size is None else str(size) for size in shape)
