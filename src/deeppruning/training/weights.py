"""Weights files: read without running any code in them, and fitted to a network strictly.

Read are safetensors files and what `torch.save` writes: a state dict, bare or inside a training state.
"""

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.data.unpacking import check_unpacked
from deeppruning.errors import DAMAGE, DataError, InputError, WeightsError
from deeppruning.training.finite import learnt, not_finite
from deeppruning.training.prefixes import COUNTER, find_network
from deeppruning.training.tensors import read_tensors

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params")
NORMALIZATION_KEY = "normalization"
THIN = (
    "It is a solution of a run, a thin network: `deeppruning evaluate` and deeppruning.load take it as it is."
)
LISTED_AT_MOST = 5
SHOWN_AT_MOST = 200  # characters of a value that is not what it should be
DEEPEST = 8  # tables within tables, of which the innermost is the state dict

_IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Public checkpoints by the start of their SHA-256, which their file names carry (resnet20-12fca82f.th).
KNOWN_CHECKPOINTS = {"12fca82f": _IMAGENET, "4bfd9763": _IMAGENET}

# Training states often record an accuracy as a numpy number; these rebuild one and can do nothing else.
_NUMPY_SCALAR: Any = np.float64(0).__reduce__()[0]
_NUMPY_GLOBALS: list[Any] = [
    _NUMPY_SCALAR,
    (_NUMPY_SCALAR, "numpy.core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "float16", "int64", "int32", "bool")),
]


def load_weights(model: nn.Module, path: str | Path) -> str:
    """Put the weights of a file into a network, in place; any entry that does not fit is an error.

    Batch counters (num_batches_tracked) may be absent, as they are in files of older torch versions. Names
    may lie under the prefix of a wrapper (`model.`, `module.`); a note that tells what was left out beside
    it is returned, empty where nothing was.
    """
    wanted = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    found = find_network(read_state_dict(path), wanted)
    given = found.state
    if found.rivals:
        raise WeightsError(
            f"{path} holds {1 + len(found.rivals)} networks that fit {type(model).__name__}, under "
            f"{', '.join((found.prefix, *found.rivals))}; save the state_dict() of one of them alone"
        )
    missing = [key for key in wanted if key not in given and not key.endswith(COUNTER)]
    unexpected = [key for key in given if key not in wanted]
    reshaped = [
        f"{key} (file {_shape(given[key])}, network {_shape(wanted[key])})"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
    ]
    problems = [
        _listed("missing in the file", missing),
        _listed("not in the network", unexpected),
        _listed("of another shape", reshaped),
    ]
    if missing or unexpected or reshaped:
        where = f" under {found.prefix!r}" if found.prefix else ""
        raise WeightsError(
            f"{path} does not fit {type(model).__name__}{where}: {'; '.join(filter(None, problems))}. "
            + (THIN if is_thin(path) else "Check the network's name, its options and the number of classes.")
        )
    check_given(path, model, given)
    try:
        model.load_state_dict(given, strict=False)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(
            f"{path} holds weights that {type(model).__name__} cannot take: {error}"
        ) from error
    left_out = _listed("left out", list(found.outside))
    return f"{path}: weights taken from under {found.prefix!r}; {left_out}" if left_out else ""


def is_thin(path: str | Path) -> bool:
    """Whether a file is a solution of a run: it records how its network was cut."""
    path = _checked(Path(path))
    return path.suffix == ".safetensors" and "cut" in read_tensors(path)[1]


def check_given(path: str | Path, model: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Refuse a file with weights for this network that are not finite: whatever it says is no answer."""
    broken = not_finite({name: given[name] for name in learnt(model) if name in given})
    if broken:
        raise WeightsError(
            f"{path}: {_listed('not finite (nan or inf)', broken)}; the training that wrote it diverged "
            "or the file is damaged: give another"
        )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, on the CPU."""
    path = _checked(Path(path))
    if path.suffix == ".safetensors":
        state, _ = read_tensors(path)
    else:
        state = _state_inside(_read_torch(path), path)
    if not state:
        raise WeightsError(f"{path} holds no tensors; save the network's state_dict()")
    return state


def normalization_for(path: str | Path) -> Normalization | None:
    """The input normalisation these weights were trained with, where the file or its hash tells it."""
    path = _checked(Path(path))
    if path.suffix == ".safetensors":
        recorded: Any = read_tensors(path)[1].get(NORMALIZATION_KEY)
    else:
        content = _read_torch(path)
        recorded = content.get(NORMALIZATION_KEY) if isinstance(content, Mapping) else None
    if recorded is not None and not isinstance(recorded, Tensor):
        return parse_normalization(recorded, path)
    digits = re.search(r"-([0-9a-f]{8})\.", path.name)
    if digits is None or digits[1] not in KNOWN_CHECKPOINTS:
        return None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return KNOWN_CHECKPOINTS[digits[1]] if digest.startswith(digits[1]) else None


def _checked(path: Path) -> Path:
    try:
        if path.is_dir():
            raise WeightsError(f"{path} is a folder; name the weights file inside it")
        with path.open("rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        raise WeightsError(f"there is no weights file {path} (looked in {Path.cwd()})") from None
    except OSError as error:
        raise WeightsError(f"weights file {path} cannot be read: {error.strerror}") from error
    if empty:
        raise WeightsError(f"weights file {path} is empty; copy or download it again")
    return path


def _read_torch(path: Path) -> Any:
    _check_packing(path)
    try:
        with torch.serialization.safe_globals(_NUMPY_GLOBALS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:
            raise _damaged(path) from error
        raise WeightsError(
            f"{path} holds a Python object ({found[1]}) beside its tensors and is refused, because loading "
            "such a file can run code; save the network's state_dict() alone, or as safetensors"
        ) from error
    # A damaged file can make torch's readers raise nearly anything; to the user it is one case.
    except Exception as error:
        raise _damaged(path) from error


def _check_packing(path: Path) -> None:
    """torch.save stores as it is; an archive that unpacks to much more than itself was made by another."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        check_unpacked(path, packed=path.stat().st_size, unpacked=unpacked)
    except DataError as error:
        raise WeightsError(str(error)) from error
    except Exception:
        return  # the older form of torch.save, or damage, which torch.load tells


def _damaged(path: Path) -> WeightsError:
    return WeightsError(
        f"{path} is cut short, damaged or not written by torch.save; copy or download it again "
        "(safetensors files must be named .safetensors)"
    )


def _state_inside(content: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in a loaded file: the table itself, or the entry of a training state that holds it."""
    for _ in range(DEEPEST):
        inner = [content[name] for name in WRAPPERS if isinstance(_entry(content, name), Mapping)]
        if not inner:
            break
        content = inner[0]
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} holds a {type(content).__name__}, not a table of tensors by name")
    if not all(isinstance(key, str) for key in content):
        raise WeightsError(f"{path} holds a table whose names are not all text; save the state_dict()")
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if content and not tensors:
        raise WeightsError(
            f"{path} holds no state dict: looked for tensors and for the entries {', '.join(WRAPPERS)}, "
            f"found {', '.join(map(str, list(content)[:LISTED_AT_MOST]))}"
        )
    return tensors


def _entry(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, Mapping) else None


def parse_normalization(recorded: Any, path: Path) -> Normalization:
    """The normalisation that a file records, as JSON or as a table."""
    try:
        table = json.loads(recorded) if isinstance(recorded, str) else recorded
        mean = tuple(float(value) for value in table["mean"])
        std = tuple(float(value) for value in table["std"])
    except DAMAGE as error:
        raise WeightsError(
            f'{path} records a normalization that is not {{"mean": [...], "std": [...]}}: '
            f"{str(recorded)[:SHOWN_AT_MOST]}"
        ) from error
    try:
        return Normalization(mean, std)
    except InputError as error:
        raise WeightsError(f"{path} records a normalization that cannot be used: {error}") from error


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _listed(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - LISTED_AT_MOST} more" if len(names) > LISTED_AT_MOST else ""
    return f"{len(names)} {what}: {', '.join(names[:LISTED_AT_MOST])}{more}"
