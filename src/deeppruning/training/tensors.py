"""Tensors on disk as safetensors: written whole or not at all, and read back only if nothing has changed.

Every file carries a checksum of its tensors and of the rest of its metadata: a flipped bit in a weight,
or a digit of a cut, would otherwise be used without a word. Files of others have none, and are read.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from deeppruning.errors import DeepPruningError, WeightsError
from deeppruning.system.files import write_atomically

CHECKSUM = "checksum"  # the key of the metadata under which it is kept


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A safetensors file, put in place whole or not at all; a failing disk raises RunError."""
    # Serialised in memory first: safetensors reports a full disk as its own error, without the cause.
    write_atomically(path, tensor_bytes(tensors, metadata))


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The contents of a safetensors file, with a checksum; equal ones give equal bytes."""
    # Each tensor is copied, for the format refuses tensors that share memory or are not contiguous.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    described = {key: value for key, value in metadata.items() if key != CHECKSUM}
    return with_sorted_metadata(save(plain, {**described, CHECKSUM: _checksum(plain, described)}))


def read_tensors(
    path: Path, *, error: type[DeepPruningError] = WeightsError, advice: str = "copy or save it again"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file; one that is damaged, or no safetensors file, raises `error`."""
    if not path.is_file():  # a pipe would be waited for
        raise error(f"{path} is not a file; {advice}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # A damaged file can make the reader raise nearly anything; to the user it is one case.
    except Exception as problem:
        raise error(f"{path} is damaged or not a safetensors file ({problem}); {advice}") from problem
    written = metadata.get(CHECKSUM)
    if written is not None:
        described = {key: value for key, value in metadata.items() if key != CHECKSUM}
        if not hmac.compare_digest(_checksum(tensors, described).encode(), written.encode()):
            raise error(f"{path} is damaged: it does not match its own checksum; {advice}")
    return tensors, metadata


def with_sorted_metadata(content: bytes) -> bytes:
    """The same safetensors file with its metadata in alphabetical order.

    The library writes them in an order that changes from process to process; equal contents must give
    equal bytes. The header is padded to 8 bytes, as the format asks for.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + content[end:]


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, shapes, types and values."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        # Through bytes, for numpy does not know every type torch has.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    described = json.dumps(sorted(metadata.items()))
    both = hash_tensors(dict(sorted(tensors.items()))) + described
    return f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
