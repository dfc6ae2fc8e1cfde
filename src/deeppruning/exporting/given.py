"""Networks that are at hand in Python, to be written and measured as those of a run are."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deeppruning.errors import InputError, unknown
from deeppruning.exporting.networks import RunNetwork, read_network
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.front import Front, ThinNetwork
from deeppruning.jobs.identity import original
from deeppruning.jobs.result import Result
from deeppruning.jobs.solution import Solution, read_solution
from deeppruning.roles import ORIGINAL, ROLES, candidate_name

Given = Result | Front | Solution | ThinNetwork | nn.Module
AtHand = Solution | ThinNetwork | nn.Module


def named(given: Given, name: str) -> AtHand:
    """One network: it itself, or the one of this name of a result or a front."""
    if isinstance(given, Result):
        if name not in given.picks:
            raise unknown("solution", name, given.picks)
        return given.picks[name]
    if isinstance(given, Front):
        return _of_front(given)[name] if name in ROLES else _refuse_role(name)
    return given


def example_of(given: Given, example_input: Tensor | None) -> Tensor | None:
    """The input that is given or, of a result, the one that its run used."""
    known = given.yardstick if isinstance(given, Result) else None
    return example_input if known is None else _one_tensor(example_input, known.context.example_input)


def as_run_network(given: AtHand, example_input: Tensor | None) -> RunNetwork:
    """The network with what is known of its inputs; a copy, on the processor and in evaluation mode."""
    metadata: Mapping[str, str] = {}
    name, file, example = "network", Path("the network"), example_input
    if isinstance(given, Solution):
        name, file = given.role, given.path or Path(given.role)
        metadata = read_solution(given.path)[0] if given.path is not None and given.path.is_file() else {}
        example = example if metadata else _one_tensor(example, given.example_input)
    elif isinstance(given, ThinNetwork):
        name, file = candidate_name(given.candidate.id), Path(candidate_name(given.candidate.id))
        example = _one_tensor(example, given.context.example_input)
    elif example is None:
        raise InputError("give an input of the network as example_input: a batch of one will do")
    model = given if isinstance(given, nn.Module) else given.model
    return RunNetwork(name, copy.deepcopy(model).cpu().eval(), metadata, file, example)


def beside_original(
    given: Front | AtHand, model: nn.Module | None, example_input: Tensor | None
) -> tuple[dict[str, RunNetwork], dict[str, int]]:
    """What is measured together, the original first, and the FLOPs of each.

    The original is `model`; that of a front and of a run is known.
    """
    thin: dict[str, AtHand]
    if isinstance(given, Front):
        # A candidate that holds several roles is one network, and has one speed.
        picks = _of_front(given)
        ready = {one.candidate.id: as_run_network(one, example_input) for one in picks.values()}
        thin, networks = dict(picks), {role: ready[one.candidate.id] for role, one in picks.items()}
    else:
        alone = as_run_network(given, example_input)
        thin, networks = {alone.name: given}, {alone.name: alone}
    first = next(iter(networks.values()))
    whole = as_run_network(_original(given, model), first.example())
    flops = {name: _flops(one, networks[name]) for name, one in thin.items()}
    return {ORIGINAL: whole, **networks}, {ORIGINAL: _flops(whole.model, whole), **flops}


def _original(given: Front | AtHand, model: nn.Module | None) -> nn.Module:
    if model is not None:
        return model
    if isinstance(given, (Front, ThinNetwork)):
        return original(given.context)
    if isinstance(given, Solution) and given.path is not None:
        return read_network(given.path.parent, ORIGINAL).model
    raise InputError("say what it is to be measured against: give the original as model")


def _flops(given: AtHand, network: RunNetwork) -> int:
    if not isinstance(given, nn.Module):
        return given.flops
    graph = ChannelGraph(network.model, network.example())
    flops: int = graph.flops(graph.full_genome())
    return flops


def _of_front(front: Front) -> dict[str, ThinNetwork]:
    return {role: getattr(front, role) for role in ROLES}


def _refuse_role(name: str) -> ThinNetwork:
    raise unknown("network of a front", name, ROLES)


def _one_tensor(given: Tensor | None, known: Any) -> Tensor | None:
    """The input to use: the one that is given, or that of the search where it is one tensor."""
    if isinstance(known, (tuple, list)) and len(known) == 1:
        known = known[0]
    return known if given is None and isinstance(known, Tensor) else given
