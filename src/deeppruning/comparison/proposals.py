"""What one method proposed with one seed, kept on disk so that a comparison can go on after a stop."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from deeppruning.comparison.problem import Network
from deeppruning.errors import DAMAGE, RunError
from deeppruning.genome import Genome
from deeppruning.training.tensors import read_tensors, write_tensors


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
            tensors[f"{place}/weights/{name}"] = tensor
    facts = {"errors": json.dumps(proposal.errors), "seconds": json.dumps(proposal.seconds)}
    facts["failures"] = json.dumps([network.failure for network in proposal.networks])
    write_tensors(path, tensors, facts)


def read_proposal(path: Path) -> Proposal | None:
    """A proposal that was kept, or None."""
    if not path.exists():
        return None
    advice = "delete it and repeat the comparison, which then asks the method again"
    tensors, facts = read_tensors(path, error=RunError, advice=advice)
    try:
        errors = tuple(None if error is None else float(error) for error in json.loads(facts["errors"]))
        failures = json.loads(facts.get("failures", "null")) or [""] * len(errors)
        networks = [_network(place, tensors, str(failures[place])) for place in range(len(errors))]
        return Proposal(tuple(networks), errors, float(json.loads(facts["seconds"])))
    except DAMAGE as error:
        raise RunError(f"{path} is not a whole proposal ({error}); {advice}") from error


def _network(place: int, tensors: Mapping[str, Tensor], failure: str) -> Network:
    genome: Genome = tensors[f"{place}/genome"].numpy().astype(np.bool_)
    start = f"{place}/weights/"
    weights = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
    return Network(genome, weights or None, failure)


def file_name(method: str, seed: int) -> str:
    """How the files of one method with one seed are called.

    >>> file_name("l1", 0)
    'l1-seed-0'
    """
    return f"{method}-seed-{seed}"
