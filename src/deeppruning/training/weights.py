"""Weights files: read without running any code in them, and fitted to a network strictly.

Read are safetensors files and what `torch.save` writes: a state dict, bare or inside a training state.
"""

import hashlib
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.errors import WeightsError
from deeppruning.training.finite import learnt, not_finite

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params")
NORMALIZATION_KEY = "normalization"
LISTED_AT_MOST = 5

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


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Put the weights of a file into a network, in place; any entry that does not fit is an error.

    Batch counters (num_batches_tracked) may be absent, as they are in files of older torch versions.
    """
    given = read_state_dict(path)
    wanted = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    missing = [key for key in wanted if key not in given and not key.endswith(".num_batches_tracked")]
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
        raise WeightsError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(filter(None, problems))}. "
            "Check the network's name, its options and the number of classes."
        )
    check_given(path, model, given)
    model.load_state_dict(given, strict=False)


def check_given(path: str | Path, model: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Refuse a file with weights for this network that are not finite: whatever it says is no answer."""
    broken = not_finite({name: given[name] for name in learnt(model) if name in given})
    if broken:
        raise WeightsError(
            f"{path}: {_listed('not finite (nan or inf)', broken)}; the training that wrote it diverged "
            "or the file is damaged: give another"
        )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, on the CPU, without the prefixes that wrappers leave."""
    path = _checked(Path(path))
    if path.suffix == ".safetensors":
        state, _ = _read_safetensors(path)
    else:
        state = _state_inside(_read_torch(path), path)
    if not state:
        raise WeightsError(f"{path} holds no tensors; save the network's state_dict()")
    state = {key.replace("_orig_mod.", ""): tensor for key, tensor in state.items()}
    while all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): tensor for key, tensor in state.items()}
    return state


def normalization_for(path: str | Path) -> Normalization | None:
    """The input normalisation these weights were trained with, where the file or its hash tells it."""
    path = _checked(Path(path))
    if path.suffix == ".safetensors":
        recorded: Any = _read_safetensors(path)[1].get(NORMALIZATION_KEY)
    else:
        content = _read_torch(path)
        recorded = content.get(NORMALIZATION_KEY) if isinstance(content, Mapping) else None
    if recorded is not None and not isinstance(recorded, Tensor):
        return _parse_normalization(recorded, path)
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


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise WeightsError(
            f"{path} is damaged or no safetensors file ({error}); copy or save it again"
        ) from error


def _read_torch(path: Path) -> Any:
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


def _damaged(path: Path) -> WeightsError:
    return WeightsError(
        f"{path} is cut short, damaged or not written by torch.save; copy or download it again "
        "(safetensors files must be named .safetensors)"
    )


def _state_inside(content: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in a loaded file: the table itself, or the entry of a training state that holds it."""
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} holds a {type(content).__name__}, not a table of tensors by name")
    for wrapper in WRAPPERS:
        if isinstance(content.get(wrapper), Mapping):
            return _state_inside(content[wrapper], path)
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if content and not tensors:
        raise WeightsError(
            f"{path} holds no state dict: looked for tensors and for the entries {', '.join(WRAPPERS)}, "
            f"found {', '.join(map(str, list(content)[:LISTED_AT_MOST]))}"
        )
    return tensors


def _parse_normalization(recorded: Any, path: Path) -> Normalization:
    try:
        table = json.loads(recorded) if isinstance(recorded, str) else recorded
        mean = tuple(float(value) for value in table["mean"])
        std = tuple(float(value) for value in table["std"])
    except (ValueError, TypeError, KeyError) as error:
        raise WeightsError(
            f'{path} records a normalization that is not {{"mean": [...], "std": [...]}}: {recorded!r}'
        ) from error
    if not mean or len(mean) != len(std) or not all(0 < value < float("inf") for value in std):
        raise WeightsError(f"{path} records a normalization that cannot be used: mean {mean}, std {std}")
    return Normalization(mean, std)


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _listed(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - LISTED_AT_MOST} more" if len(names) > LISTED_AT_MOST else ""
    return f"{len(names)} {what}: {', '.join(names[:LISTED_AT_MOST])}{more}"
