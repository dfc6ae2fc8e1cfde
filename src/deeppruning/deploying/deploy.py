"""`dp.deploy`: a copy of a network with batch norms folded and no-ops removed, proven equal to the original.

>>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout())
>>> [type(part).__name__ for part in deploy(net, torch.zeros(1, 1, 8, 8))]
['Conv2d', 'ReLU']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.deploying.steps import (
    Fix,
    FoldNorm,
    Remove,
    Step,
    find_answers,
    find_no_ops,
    find_norms,
    find_unheard,
)
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
from deeppruning.graph.trace.flow import Flow, FlowRun
from deeppruning.models.registry import architecture_of
from deeppruning.system.device import precision_of

UNPROVEN = "outputs were not the same without it"
SIDES = (32, 64, 224, 28, 8, 299)  # image sizes that are tried, the usual ones first


@dataclass(frozen=True)
class Deployment:
    """What `dp.deploy` did, found on its result as `network.deployment`.

    >>> print(Deployment({"bn": "conv"}, kept={"head.bn": "it reads no layer"}))
    1 batch norm folded, 0 no-ops removed, 0 stand-ins made constant
    batch norm head.bn stays: it reads no layer
    """

    folded: Mapping[str, str] = field(default_factory=dict)  # batch norm -> the layer it was folded into
    removed: tuple[str, ...] = ()  # dropout and the like
    constant: tuple[str, ...] = ()  # stand-ins for removed layers that no longer read their input
    kept: Mapping[str, str] = field(default_factory=dict)  # batch norm -> why it is still there

    def __str__(self) -> str:
        plural = "norm" if len(self.folded) == 1 else "norms"
        lines = [
            f"{len(self.folded)} batch {plural} folded, {len(self.removed)} no-ops removed, "
            f"{len(self.constant)} stand-ins made constant",
            *(f"batch norm {name} stays: {reason}" for name, reason in self.kept.items()),
        ]
        return "\n".join(lines)


def deploy(model: nn.Module, example_input: Any = None) -> nn.Module:
    """A copy of a network for inference: the same outputs as in evaluation mode, in fewer operations.

    Batch norms are folded into the convolution or linear layer before them, dropout and identities are
    removed, and stand-ins for removed layers return their constant directly. The network is run once to see
    which module reads which, so its forward may be written in any way. Every step is proven by comparing
    outputs; a step that changes them is undone. `deployment` of the copy lists what was done and what had to
    stay. The original is not changed.

    `example_input` is a tensor, a tuple of positional or a dict of keyword arguments; without it, an input
    is made up from the shape of the first layer. For example: `dp.deploy(model, torch.zeros(1, 3, 32, 32))`.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    check_model(model)
    args, kwargs = as_call(_guess_deploy_input(model) if example_input is None else example_input)
    ready = _copy_for_inference(model)
    proof = _Proof(ready, args, kwargs)
    flow = proof.flow([])
    folds, kept = find_norms(ready, flow)
    steps = find_no_ops(ready)
    steps += [FoldNorm(norm, layer) for norm, layer in folds.items()]
    steps += find_answers(ready, flow)
    done = proof.proven([], steps)
    if any(isinstance(step, Fix) for step in done):
        # Only now can be seen which modules were read by nothing but stand-ins.
        done = proof.proven(done, find_unheard(proof.applied(ready, done), proof.flow(done)))
    copy = proof.applied(ready, done)
    folded = {step.norm: step.layer for step in done if isinstance(step, FoldNorm)}
    copy.__dict__["deployment"] = Deployment(
        folded=folded,
        removed=tuple(step.name for step in done if isinstance(step, Remove)),
        constant=tuple(step.name for step in done if isinstance(step, Fix)),
        kept={**kept, **{norm: UNPROVEN for norm in folds if norm not in folded}},
    )
    return copy


def deployed(network: nn.Module, example_input: Any) -> nn.Module:
    """The deployment form, or the network itself where it cannot be deployed: it can still be run."""
    try:
        return deploy(network, example_input)
    except GraphError:
        return network


def _copy_for_inference(model: nn.Module) -> nn.Module:
    """A copy of a network in evaluation mode, without what earlier runs left in it."""
    try:
        copy = duplicate(model, {})
    except Exception as error:
        raise GraphError(
            f"the network cannot be copied (copy.deepcopy failed: {error}); if it keeps results of a run as "
            "attributes, delete or detach them first"
        ) from error
    forget_runs(copy)
    return copy.eval()


@dataclass(frozen=True)
class _Case:
    """A network, inputs, and its outputs for them."""

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
        try:
            self.cases = [self._case_of(*real)]
        except Exception as error:
            raise GraphError(
                f"running the network once on the example input failed: {describe_raised(error)}"
            ) from error
        for made in (probe_copy(model, args, dict(kwargs)), (real[0], *doubled(real[1:]))):
            try:
                self.cases.append(self._case_of(*made))
            except Exception:  # random weights or a larger batch do not suit every network
                continue

    def flow(self, done: Sequence[Step]) -> Flow:
        """Which module of the network after these steps reads which."""
        case = self.cases[0]
        copy = unrun(self.applied(case.model, done), training=False)
        with seeded():
            return FlowRun(copy, frozenset()).follow(copy, case.args, case.kwargs)

    def proven(self, done: list[Step], more: Sequence[Step]) -> list[Step]:
        """The steps done, and those of `more` that can be added without a change of outputs."""
        together = [*done, *more]
        if not more or all(self._holds_after(case, together) for case in self.cases):
            return together
        if len(more) == 1:
            return done
        half = len(more) // 2
        return self.proven(self.proven(done, more[:half]), more[half:])

    @staticmethod
    def applied(model: nn.Module, steps: Sequence[Step]) -> nn.Module:
        """A copy of a network after these steps; it shares the parameters that no step changes."""
        copy = duplicate(model, {id(parameter): parameter for parameter in model.parameters()})
        for step in steps:
            step.apply(copy)
        return copy

    def _holds_after(self, case: _Case, steps: Sequence[Step]) -> bool:
        """Whether the outputs stay the same after these steps."""
        try:
            with seeded():
                outputs = self.applied(case.model, steps)(*case.args, **case.kwargs)
        except Exception:
            return False  # the forward uses a module that has been removed
        return difference(outputs, case.expected)[0] <= case.tolerance

    @staticmethod
    def _case_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Case:
        with seeded():
            expected = unrun(model, training=False)(*args, **kwargs)
        kinds = {each.dtype for each in model.parameters() if each.is_floating_point()}
        coarsest = max(kinds, key=tolerance_for, default=torch.float32)
        return _Case(model, args, kwargs, expected, tolerance_for(coarsest))


def _guess_deploy_input(model: nn.Module) -> Tensor:
    """An input that the network accepts, by its architecture or the shape of its first layer."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for shape in _likely_input_shapes(model):
        example = torch.zeros(shape, dtype=precision_of(model), device=device)
        try:
            with seeded():
                unrun(model, training=False)(example)
        except Exception:  # any code may run in a forward
            continue
        return example
    raise InputError(
        f"the input shape of {type(model).__name__} could not be guessed; give an input: "
        "dp.deploy(model, example_input)"
    )


def _likely_input_shapes(model: nn.Module) -> list[tuple[int, ...]]:
    options = architecture_of(model)
    if options is not None and "image_size" in options and "in_channels" in options:
        return [(1, options["in_channels"], options["image_size"], options["image_size"])]
    first = next((each for each in model.modules() if isinstance(each, (_ConvNd, nn.Linear))), None)
    if isinstance(first, nn.Linear):
        return [(1, first.in_features)]
    if first is None:
        return []
    weight = first.weight
    width = weight.shape[0] if isinstance(first, _ConvTransposeNd) else weight.shape[1] * first.groups
    return [(1, width, *[side] * (weight.dim() - 2)) for side in SIDES]
