"""Write and read tensors as safetensors files, replaced atomically and protected by a checksum.

The checksum covers the tensors and the rest of the metadata: a flipped bit in a weight would otherwise go
unnoticed. Files written by other programs have none and are read without it.
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

CHECKSUM = "checksum"  # its key in the metadata


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically; raises RunError if the disk fails."""
    # Serialised in memory first, because safetensors hides the cause when the disk is full.
    write_atomically(path, tensor_bytes(tensors, metadata))


def tensor_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The contents of a safetensors file with a checksum; equal tensors give equal bytes."""
    # Copied, because the format refuses tensors that share memory or are not contiguous.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    described = {key: value for key, value in metadata.items() if key != CHECKSUM}
    return _with_sorted_metadata(save(plain, {**described, CHECKSUM: _checksum_of_tensors(plain, described)}))


def read_tensors(
    path: Path, *, error: type[DeepPruningError] = WeightsError, advice: str = "copy or save it again"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file; raises `error` if it is damaged or not a safetensors file."""
    if not path.is_file():  # reading a pipe would block
        raise error(f"{path} is not a file; {advice}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # A damaged file can make the reader raise nearly anything.
    except Exception as problem:
        raise error(f"{path} is damaged or not a safetensors file ({problem}); {advice}") from problem
    written = metadata.get(CHECKSUM)
    if written is not None:
        described = {key: value for key, value in metadata.items() if key != CHECKSUM}
        if not hmac.compare_digest(_checksum_of_tensors(tensors, described).encode(), written.encode()):
            raise error(f"{path} is damaged: it does not match its own checksum; {advice}")
    return tensors, metadata


def _with_sorted_metadata(content: bytes) -> bytes:
    """The same file with its metadata in alphabetical order; the library's order varies between processes.

    The header is padded to 8 bytes, as the format requires.
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
        # As bytes, because numpy does not have every type torch has.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _checksum_of_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    described = json.dumps(sorted(metadata.items()))
    both = hash_tensors(dict(sorted(tensors.items()))) + described
    return f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
