"""The weights of a network as plain safetensors, its description in the metadata."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.exporting.formats import FORMATS, Format
from deeppruning.training.tensors import write_tensors


def export_safetensors(
    model: nn.Module, path: str | Path, *, metadata: Mapping[str, str] | None = None
) -> float:
    """Write the weights under their names in the class, read them back and return the difference: 0."""
    path = Path(path)
    state = model.state_dict()
    write_tensors(path, state, metadata or {})
    written = load_file(path)
    for name, tensor in state.items():
        if not torch.equal(written[name], tensor.cpu()):
            path.unlink()
            raise GraphError(f"{path} did not read back as written ({name}); check the disk and try again")
    return 0.0


FORMATS.add(
    Format(
        name="safetensors",
        suffix=".safetensors",
        about="plain weights",
        write=lambda export, path: export_safetensors(export.model, path, metadata=export.metadata),
        graph=False,
    ),
    place=30,
)
