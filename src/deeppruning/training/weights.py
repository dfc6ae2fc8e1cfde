"""Weights files: read without running code in them, and checked against the network.

They are safetensors files, or files of `torch.save` with a state dict, alone or inside a training state.
"""

import hashlib
import json
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.amounts import listed
from deeppruning.data.images import Normalization
from deeppruning.data.unpacking import check_unpacked
from deeppruning.errors import DAMAGE, DataError, InputError, WeightsError
from deeppruning.training.finite import learnt, not_finite
from deeppruning.training.tensors import read_tensors

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params")
NORMALIZATION_KEY = "normalization"
THIN = "It is the thin network of a run: use `deeppruning evaluate` or deeppruning.load."
LISTED_AT_MOST = 5
SHOWN_AT_MOST = 200  # characters of an invalid value
DEEPEST = 8  # nested tables around a state dict, or nested prefixes
COMPILED = "_orig_mod."
# Prefixes that wrappers use for the network itself; preferred if several fit.
USUAL_NAMES = {"_orig_mod", "model", "module", "net", "network", "backbone", "student"}
COUNTER = ".num_batches_tracked"  # may be missing, as in files of older torch versions

_IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Public checkpoints by the first digits of their SHA-256, part of their file names (resnet20-12fca82f.th).
KNOWN_CHECKPOINTS = {"12fca82f": _IMAGENET, "4bfd9763": _IMAGENET}

# Training states often hold an accuracy as a numpy number; these can only rebuild such a number.
_NUMPY_SCALAR: Any = np.float64(0).__reduce__()[0]
_NUMPY_GLOBALS: list[Any] = [
    _NUMPY_SCALAR,
    (_NUMPY_SCALAR, "numpy.core.multiarray.scalar"),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "float16", "int64", "int32", "bool")),
]


def load_weights(model: nn.Module, path: str | Path) -> str:
    """Load the weights of a file into a network, in place; any entry that does not fit is an error.

    num_batches_tracked may be missing, as in files of older torch versions. Names may have the prefix of a
    wrapper (`model.`, `module.`). Returns a note about entries outside that prefix, empty if there are none.
    """
    wanted = {key: value for key, value in model.state_dict().items() if isinstance(value, Tensor)}
    network = _find_network(read_state_dict(path), wanted)
    given = network.state
    if network.rivals:
        raise WeightsError(
            f"{path} holds {1 + len(network.rivals)} networks that fit {type(model).__name__}, under "
            f"{', '.join((network.prefix, *network.rivals))}; save the state_dict() of one of them alone"
        )
    if problems := _mismatches_of_shapes(given, wanted):
        where = f" under {network.prefix!r}" if network.prefix else ""
        raise WeightsError(
            f"{path} does not fit {type(model).__name__}{where}: {'; '.join(problems)}. "
            + (THIN if is_thin(path) else "Check the network's name, its options and the number of classes.")
        )
    check_given(path, model, given)
    try:
        model.load_state_dict(given, strict=False)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(
            f"{path} holds weights that {type(model).__name__} cannot take: {error}"
        ) from error
    left_out = _list_names("left out", list(network.outside))
    return f"{path}: weights taken from under {network.prefix!r}; {left_out}" if left_out else ""


def is_thin(path: str | Path) -> bool:
    """Whether a file is a thin network of a run: it records how its network was cut."""
    path = _checked_file(Path(path))
    return path.suffix == ".safetensors" and "cut" in read_tensors(path)[1]


def check_given(path: str | Path, model: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Refuse a file with weights for this network that are not finite."""
    broken = not_finite({name: given[name] for name in learnt(model) if name in given})
    if broken:
        raise WeightsError(
            f"{path}: {_list_names('not finite (nan or inf)', broken)}; the training that wrote it diverged "
            "or the file is damaged: give another"
        )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, on the CPU."""
    path = _checked_file(Path(path))
    if path.suffix == ".safetensors":
        state, _ = read_tensors(path)
    else:
        state = _state_inside(_read_torch_file(path), path)
    if not state:
        raise WeightsError(f"{path} holds no tensors; save the network's state_dict()")
    return state


def normalization_for(path: str | Path) -> Normalization | None:
    """The input normalisation these weights were trained with, if the file records it or is a known one."""
    path = _checked_file(Path(path))
    if path.suffix == ".safetensors":
        recorded: Any = read_tensors(path)[1].get(NORMALIZATION_KEY)
    else:
        content = _read_torch_file(path)
        recorded = content.get(NORMALIZATION_KEY) if isinstance(content, Mapping) else None
    if recorded is not None and not isinstance(recorded, Tensor):
        return parse_normalization(recorded, path)
    digits = re.search(r"-([0-9a-f]{8})\.", path.name)
    if digits is None or digits[1] not in KNOWN_CHECKPOINTS:
        return None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return KNOWN_CHECKPOINTS[digits[1]] if digest.startswith(digits[1]) else None


def _checked_file(path: Path) -> Path:
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


def _read_torch_file(path: Path) -> Any:
    _check_packing(path)
    try:
        with torch.serialization.safe_globals(_NUMPY_GLOBALS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        match = re.search(r"GLOBAL ([\w.]+)", str(error))
        if match is None:
            raise _damaged_weights(path) from error
        raise WeightsError(
            f"{path} holds a Python object ({match[1]}) beside its tensors and is refused, because loading "
            "such a file can run code; save the network's state_dict() alone, or as safetensors"
        ) from error
    # A damaged file can make torch raise nearly anything.
    except Exception as error:
        raise _damaged_weights(path) from error


def _check_packing(path: Path) -> None:
    """Refuse archives that unpack to much more than their size; torch.save does not compress."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        check_unpacked(path, packed=path.stat().st_size, unpacked=unpacked)
    except DataError as error:
        raise WeightsError(str(error)) from error
    except Exception:
        return  # the older format of torch.save, or damage, which torch.load reports


def _damaged_weights(path: Path) -> WeightsError:
    return WeightsError(
        f"{path} is cut short, damaged or not written by torch.save; copy or download it again "
        "(safetensors files must be named .safetensors)"
    )


def _state_inside(content: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in a loaded file: the table itself, or an entry of a training state."""
    for _ in range(DEEPEST):
        inner = [content.get(name) for name in WRAPPERS] if isinstance(content, Mapping) else []
        tables = [entry for entry in inner if isinstance(entry, Mapping)]
        if not tables:
            break
        content = tables[0]
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} holds a {type(content).__name__}, not a table of tensors by name")
    if not all(isinstance(key, str) for key in content):
        raise WeightsError(f"{path} holds a table with names that are not strings; save the state_dict()")
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if content and not tensors:
        raise WeightsError(
            f"{path} holds no state dict: looked for tensors and for the entries {', '.join(WRAPPERS)}, "
            f"found {', '.join(map(str, list(content)[:LISTED_AT_MOST]))}"
        )
    return tensors


def parse_normalization(recorded: Any, path: Path) -> Normalization:
    """The normalisation recorded in a file, as JSON or as a table."""
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


def _shape_in_words(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _list_names(what: str, names: list[str]) -> str:
    return f"{len(names)} {what}: {listed(names, LISTED_AT_MOST)}" if names else ""


@dataclass(frozen=True, eq=False)
class _Network:
    """The part of a file that is the network, under the network's own names, and the rest."""

    prefix: str
    state: dict[str, Tensor]
    outside: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()  # other prefixes that fit too, with other values


def _find_network(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> _Network:
    """The entries of a file that are the network, or those that come nearest.

    A Lightning checkpoint has `model.conv1.weight` instead of `conv1.weight`; DataParallel and averaged
    models add `module.`, torch.compile `_orig_mod.`; several may be nested. A prefix counts only if the whole
    network and nothing else is under it. Entries outside (a loss, a teacher) are left out.

    >>> value = torch.zeros(1)
    >>> network = _find_network({"model.a": value, "loss.weight": value}, {"a": value})
    >>> network.prefix, list(network.state), network.outside
    ('model.', ['a'], ('loss.weight',))
    """
    compiled = {name.replace(COMPILED, ""): tensor for name, tensor in state.items()}
    needed = sum(not name.endswith(COUNTER) for name in wanted)
    for names in (state, compiled):
        candidates = _candidate_prefixes(names, wanted, needed)
        fitting = [network for network in candidates if not _mismatches_of_shapes(network.state, wanted)]
        if fitting:
            return _choose_prefix(fitting)
    return next(_candidate_prefixes(compiled, wanted, 1), _Network("", dict(state)))


def _candidate_prefixes(
    state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], least: int
) -> Iterator[_Network]:
    """The entries under each prefix with at least `least` of the network's names, those with most first."""
    counts: Counter[str] = Counter()
    for name in state:
        for prefix in _prefixes_of(name):
            counts[prefix] += name[len(prefix) :] in wanted
    for prefix, count in sorted(counts.items(), key=lambda item: (-item[1], len(item[0]))):
        if count >= least:
            inside = {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)}
            outside = tuple(name for name in state if not name.startswith(prefix))
            yield _Network(prefix, inside, outside)


def _prefixes_of(name: str) -> Iterator[str]:
    end = 0
    yield ""
    for _ in range(DEEPEST):
        end = name.find(".", end) + 1
        if not end:
            return
        yield name[:end]


def _mismatches_of_shapes(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """How the tensors of a file differ from those of a network in names and shapes; empty if they fit."""
    problems = {
        "missing in the file": [name for name in wanted if name not in given and not name.endswith(COUNTER)],
        "not in the network": [name for name in given if name not in wanted],
        "of another shape": [
            f"{name} (file {_shape_in_words(given[name])}, network {_shape_in_words(wanted[name])})"
            for name in wanted
            if name in given and given[name].shape != wanted[name].shape
        ],
    }
    return [_list_names(what, names) for what, names in problems.items() if names]


def _choose_prefix(fitting: list[_Network]) -> _Network:
    """The network without a prefix, else under a usual name, else the only one; others are rivals."""
    usual = [network for network in fitting if set(network.prefix.split(".")[:-1]) <= USUAL_NAMES]
    first, *others = usual or fitting
    rivals = tuple(other.prefix for other in others if not _equal_tensors(first.state, other.state))
    return _Network(first.prefix, first.state, first.outside, () if not first.prefix else rivals)


def _equal_tensors(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(bool((left[name] == right[name]).all()) for name in left)
