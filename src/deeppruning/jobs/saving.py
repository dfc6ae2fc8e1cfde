"""Write a thin network that was trained elsewhere as a run writes its own, so that `load` reads it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import nn

from deeppruning.errors import InputError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.solution import write_thin
from deeppruning.models.registry import architecture_of


def save(
    model: nn.Module,
    path: str | Path,
    graph: ChannelGraph,
    genome: Genome,
    *,
    role: str = "thin",
    error: float | None = None,
    test_error: float | None = None,
    description: Mapping[str, str] | None = None,
) -> Path:
    """Write a thin network, cut by `graph` as `genome` says and trained since, where `dp.load` finds it.

    `model` may also be what it was wrapped in to be trained: DataParallel, torch.compile, a module of
    Lightning. The file is that of a run: weights, the cut in plain numbers, costs and, where given, the
    errors in the search and on test data. `description` is further text for its metadata.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"a network is saved as safetensors: name it {path.stem}.safetensors")
    thin = _inside(model, _shapes(graph.prune(genome)))
    architecture = architecture_of(thin)
    named = {} if architecture is None else {"architecture": json.dumps(architecture, sort_keys=True)}
    described = {"role": role, **named, **(description or {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_thin(path, thin, graph, np.asarray(genome, np.bool_), (error, test_error), described)
    return path


def _inside(model: nn.Module, expected: dict[str, tuple[int, ...]]) -> nn.Module:
    """The network that was cut: the one given, or the one inside what it was wrapped in to be trained."""
    for module in model.modules():
        if _shapes(module) == expected:
            return module
    found = _shapes(model)
    name = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    raise InputError(
        f"the network is not the one that this genome cuts: {name} is {found.get(name, 'absent')} in it and "
        f"{expected.get(name, 'absent')} in the cut; give the genome that it was cut by"
    )


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
