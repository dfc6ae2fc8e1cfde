"""`dp.deploy`: a copy of a network with batch norms folded and no-ops gone, proven equal to the original.

>>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout())
>>> [type(part).__name__ for part in deploy(net, torch.zeros(1, 1, 8, 8))]
['Conv2d', 'ReLU']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from deeppruning.deploying.guess import guess_input
from deeppruning.deploying.norms import find_norms
from deeppruning.deploying.reading import SeenRun
from deeppruning.deploying.report import Deployment
from deeppruning.deploying.stand_ins import find_answers, find_unheard
from deeppruning.deploying.steps import Fix, FoldNorm, Remove, Step, find_no_ops
from deeppruning.errors import GraphError, InputError, describe_raised
from deeppruning.graph.calls import as_call
from deeppruning.graph.cut.duplicate import duplicate, forget_runs, unrun
from deeppruning.graph.proof.difference import difference, tolerance_for
from deeppruning.graph.proof.twin import (
    as_double,
    check_model,
    doubled,
    probe_copy,
    randomized_inputs,
    seeded,
)

UNPROVEN = "outputs were not the same without it"


def deploy(model: nn.Module, example_input: Any = None) -> nn.Module:
    """A copy of a network in the form it is used in: the same outputs in evaluation mode, in fewer steps.

    Batch norms are folded into the convolution or linear layer that they alone read, dropout and identities
    go, and what stands in for lost layers gives its constant at once. It is found by running the network
    once, whatever its forward does, and every step is proven by comparing outputs: one that changes them
    is undone. `deployment` of the copy tells what was done and what had to stay. The original stays as it is.

    `example_input` is a tensor, a tuple of positional or a dict of keyword arguments; without it, one is made
    up by the first layer's shape.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    check_model(model)
    args, kwargs = as_call(guess_input(model) if example_input is None else example_input)
    ready = _ready(model)
    proof = _Proof(ready, args, kwargs)
    reading = proof.read([])
    folds, kept = find_norms(ready, reading)
    steps: list[Step] = [Remove(name) for name in find_no_ops(ready)]
    steps += [FoldNorm(norm, layer) for norm, layer in folds.items()]
    steps += [Fix(name, len(reading.shapes[name])) for name in find_answers(ready, reading)]
    done = proof.proven([], steps)
    if any(isinstance(step, Fix) for step in done):
        # Only now is it seen who was read by nobody but those that look at their input no more.
        later = proof.read(done)
        unheard = find_unheard(proof.applied(ready, done), later)
        done = proof.proven(done, [Fix(name, len(later.shapes[name])) for name in unheard])
    deployed = proof.applied(ready, done)
    deployed.__dict__["deployment"] = _report(done, folds, kept)
    return deployed


def deployed(network: nn.Module, example_input: Any) -> nn.Module:
    """The network in its deployment form; as it is where that cannot be had, for it can still be run."""
    try:
        return deploy(network, example_input)
    except GraphError:
        return network


def _ready(model: nn.Module) -> nn.Module:
    try:
        copy = duplicate(model, {})
    except Exception as error:
        raise GraphError(
            f"the network cannot be copied (copy.deepcopy failed: {error}); if it keeps results of a run as "
            "attributes, delete or detach them first"
        ) from error
    forget_runs(copy)
    return copy.eval()


def _report(done: Sequence[Step], folds: Mapping[str, str], kept: Mapping[str, str]) -> Deployment:
    folded = {step.norm: step.layer for step in done if isinstance(step, FoldNorm)}
    return Deployment(
        folded=folded,
        removed=tuple(step.name for step in done if isinstance(step, Remove)),
        constant=tuple(step.name for step in done if isinstance(step, Fix)),
        kept={**kept, **{norm: UNPROVEN for norm in folds if norm not in folded}},
    )


@dataclass(frozen=True)
class _Case:
    """A network, inputs, and what it gives for them."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    expected: Any
    tolerance: float


class _Proof:
    """Steps are right if outputs stay the same: with the weights as they are, and with random ones.

    In double precision, unless the forward insists on its own; weights that happen to be zero hide mistakes.
    """

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        real = as_double(model, randomized_inputs(args), randomized_inputs(dict(kwargs)))
        self.cases = [self._case(*real, required=True)]
        self.cases += [
            case
            for made in (probe_copy(model, args, dict(kwargs)), (real[0], *doubled(real[1:])))
            if (case := self._case(*made, required=False)) is not None
        ]

    def read(self, done: Sequence[Step]) -> SeenRun:
        """Who reads whom after these steps."""
        case = self.cases[0]
        return SeenRun(self.applied(case.model, done), case.args, case.kwargs)

    def proven(self, done: list[Step], more: Sequence[Step]) -> list[Step]:
        """The steps done, and those of more that can be added to them without a change of outputs."""
        together = [*done, *more]
        if not more or all(self._holds(case, together) for case in self.cases):
            return together
        if len(more) == 1:
            return done
        half = len(more) // 2
        return self.proven(self.proven(done, more[:half]), more[half:])

    @staticmethod
    def applied(model: nn.Module, steps: Sequence[Step]) -> nn.Module:
        """A copy of a network after these steps; parameters that no step changes are shared."""
        copy = duplicate(model, {id(parameter): parameter for parameter in model.parameters()})
        for step in steps:
            step.apply(copy)
        return copy

    def _holds(self, case: _Case, steps: Sequence[Step]) -> bool:
        try:
            with seeded():
                found = self.applied(case.model, steps)(*case.args, **case.kwargs)
        except Exception:
            return False  # the forward asks something of a module that is not there any more
        return difference(found, case.expected)[0] <= case.tolerance

    def _case(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, required: bool
    ) -> Any:
        try:
            with seeded():
                expected = unrun(model, training=False)(*args, **kwargs)
        except Exception as error:
            if not required:
                return None
            raise GraphError(
                f"running the network once on the example input failed: {describe_raised(error)}"
            ) from error
        kinds = {each.dtype for each in model.parameters() if each.is_floating_point()}
        coarsest = max(kinds, key=tolerance_for, default=torch.float32)
        return _Case(model, args, kwargs, expected, tolerance_for(coarsest))
