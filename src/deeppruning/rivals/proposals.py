"""What one method proposed with one seed, kept on disk so that a comparison can go on after a stop."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

from deeppruning.atomic import write_atomically
from deeppruning.graph.plan import Bits
from deeppruning.rivals.problem import Network


@dataclass(frozen=True, eq=False)
class Proposal:
    """The networks of one method, one a target, with their test errors as cut and the time it took.

    A network that failed, or whose outputs are not finite, has no error.
    """

    networks: tuple[Network, ...]
    errors: tuple[float | None, ...]
    seconds: float


def write_proposal(path: Path, proposal: Proposal) -> None:
    """Keep a proposal, whole or not at all."""
    tensors = {}
    for place, network in enumerate(proposal.networks):
        tensors[f"{place}/genome"] = torch.from_numpy(network.genome.astype(np.uint8))
        for name, tensor in (network.weights or {}).items():
            tensors[f"{place}/weights/{name}"] = tensor.contiguous().clone()
    facts = {"errors": json.dumps(proposal.errors), "seconds": json.dumps(proposal.seconds)}
    facts["failures"] = json.dumps([network.failure for network in proposal.networks])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(tensors, facts))


def read_proposal(path: Path) -> Proposal | None:
    """A proposal that was kept, or None."""
    if not path.exists():
        return None
    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    errors = tuple(json.loads(facts["errors"]))
    failures = json.loads(facts.get("failures", "null")) or [""] * len(errors)
    networks = []
    for place in range(len(errors)):
        genome: Bits = tensors[f"{place}/genome"].numpy().astype(np.bool_)
        start = f"{place}/weights/"
        weights = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
        networks.append(Network(genome, weights or None, failures[place]))
    return Proposal(tuple(networks), errors, json.loads(facts["seconds"]))


def file_name(method: str, seed: int) -> str:
    """How the files of one method with one seed are called.

    >>> file_name("l1", 0)
    'l1-seed-0'
    """
    return f"{method}-seed-{seed}"
