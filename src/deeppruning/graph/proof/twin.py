"""Copies of a network to experiment on (in double precision, with random weights), and the runs on labels.

Evaluation mode is run in double precision with random weights, where a wrong cut shows in the values. In
training mode only shapes can be compared, because random masks depend on sizes: single precision is enough.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from deeppruning.errors import GraphError, describe_raised
from deeppruning.graph.atoms import AtomTable
from deeppruning.graph.cut.duplicate import duplicate, forget_runs, unrun
from deeppruning.graph.proof.remedies import Decisions
from deeppruning.graph.trace.follow import FOLLOWED_SEED
from deeppruning.graph.trace.tracer import Trace, Tracer, run_on_labels


def check_model(model: nn.Module) -> None:
    """Refuse, with advice, networks that cannot be cut."""
    for name, module in model.named_modules():
        where = f"{type(model).__name__}{f', at {name},' if name else ''}"
        if isinstance(module, torch.jit.ScriptModule):
            raise GraphError(f"{where} is a TorchScript module, whose code is fixed; give the eager module")
        compiled = "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None
        if compiled:
            raise GraphError(
                f"{where} was compiled by torch.compile; give the module it was made of, and compile the "
                "thin network instead"
            )
        held = (*module._parameters.values(), *module._buffers.values())
        if any(tensor is not None and is_lazy(tensor) for tensor in held):
            raise GraphError(
                f"{where} has lazy parameters without a shape; run it once before its graph is built"
            )
        if any(tensor is not None and tensor.is_meta for tensor in held):
            raise GraphError(
                f"{where} has parameters on the meta device, which holds no values; load its weights first, "
                "for example with load_state_dict(weights, assign=True)"
            )


def probe_copy(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A copy in double precision with random weights and inputs: zeros and symmetries hide mistakes.

    It has never been run, like a new network; its first run shows whether it can be (`in_own_precision`).
    """
    check_model(model)
    twin = _random_copy(model, torch.float64).double()
    args, kwargs = _map_floats((args, kwargs), lambda tensor: tensor.detach().double())
    return twin, randomized_inputs(args), randomized_inputs(kwargs)


def in_own_precision(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The same in its own precision, if the forward code requires it; else the error of the first run."""
    twin = _random_copy(model)
    try:
        with seeded():
            unrun(twin, training=False)(*args, **kwargs)
    except Exception as own:
        raise GraphError(
            f"running the network once on the example input failed: {describe_raised(own)}"
        ) from own
    double, wide_args, wide_kwargs = probe_copy(model, args, kwargs)
    try:
        with seeded():
            unrun(double, training=False)(*wide_args, **wide_kwargs)
    except Exception:
        return twin, randomized_inputs(args), randomized_inputs(kwargs)
    raise error


def light_copy(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The same in single precision, at a third of the cost, where only shapes are compared."""

    def narrow(tensor: Tensor) -> Tensor:
        return tensor.detach().float() if tensor.dtype == torch.float64 else tensor

    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(narrow(parameter), parameter.requires_grad)
        for parameter in model.parameters()
        if parameter.dtype == torch.float64
    }
    memo |= {id(buffer): narrow(buffer) for buffer in model.buffers() if buffer.dtype == torch.float64}
    args, kwargs = _map_floats((args, dict(kwargs)), narrow)
    return duplicate(model, memo), args, dict(kwargs)


def _random_copy(model: nn.Module, kind: torch.dtype | None = None) -> nn.Module:
    """A copy with random weights, in another precision if one is given."""
    generator = torch.Generator().manual_seed(0)
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.layout == torch.strided:
            drawn = _drawn(parameter, kind or parameter.dtype, generator)
            memo[id(parameter)] = nn.Parameter(drawn, requires_grad=parameter.requires_grad)
    try:
        twin = duplicate(model, memo)
    except Exception as error:
        raise GraphError(
            f"the network cannot be copied (copy.deepcopy failed: {error}); if it keeps results of a run as "
            "attributes, delete or detach them first"
        ) from error
    forget_runs(twin)
    twin.eval()
    for name, buffer in twin.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
        elif name.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return twin


def _drawn(parameter: Tensor, kind: torch.dtype, generator: torch.Generator) -> Tensor:
    """Random weights at a scale that keeps activations small, in the parameter's memory layout."""
    middle, reach = (0.7, 0.35) if parameter.ndim < 2 else (0.0, (3 / max(1, parameter[0].numel())) ** 0.5)
    values = torch.empty(parameter.shape, dtype=torch.float64)
    values.uniform_(
        middle - reach, middle + reach, generator=generator
    )  # much faster than a normal distribution
    if kind == values.dtype and values.device == parameter.device and parameter.is_contiguous():
        return values
    return torch.empty_like(parameter, dtype=kind, requires_grad=False).copy_(values)


def as_double(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A copy that was never run and its inputs, in double precision if the forward code accepts it."""
    single = duplicate(model, {})
    forget_runs(single)
    single.eval()
    double = duplicate(single, {}).double()
    wide = _map_floats((args, kwargs), lambda tensor: tensor.detach().double())
    try:
        with seeded():
            unrun(double, training=False)(*wide[0], **wide[1])
    except Exception:
        return single, args, kwargs
    return double, wide[0], wide[1]


def randomized_inputs(tree: Any, *, positive: bool = False) -> Any:
    """Inputs of the same shapes, normally distributed; or all of them positive."""
    generator = torch.Generator().manual_seed(1)

    def draw(tensor: Tensor) -> Tensor:
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return (values.abs() if positive else values).to(tensor)

    return _map_floats(tree, draw)


def doubled(tree: Any) -> Any:
    """The same inputs twice in one batch."""
    return tree_map(lambda x: torch.cat([x, x]) if isinstance(x, Tensor) and x.ndim else x, tree)


@contextmanager
def seeded(seed: int = 0, *, fused: bool = False) -> Iterator[None]:
    """Random numbers from this seed, without gradients; the caller's random state is put back after.

    Unless `fused`, attention runs module by module: torch's fused kernels would hide its layers.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    usual = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(fused and usual)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(FOLLOWED_SEED + seed)
            random.seed(seed)
            np.random.seed(seed)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(usual)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _map_floats(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest with its floating-point tensors changed."""
    return tree_map(lambda x: change(x) if isinstance(x, Tensor) and x.is_floating_point() else x, tree)


@dataclass(frozen=True)
class Scene:
    """A network and its inputs; only copies of the network are run."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool = False

    def copy(self) -> nn.Module:
        """A copy to run once."""
        return unrun(self.model, training=self.training)

    def trace(self, table: AtomTable, decisions: Decisions) -> Trace:
        """Run a copy on labels and apply the decisions about the network."""
        model = self.copy()
        tracer = Tracer(model, table, detached=frozenset(decisions.detached))
        with seeded():
            trace = run_on_labels(model, self.args, self.kwargs, tracer)
        decisions.apply(table, trace.records)
        return trace


class Stage:
    """The scenes of a network: one in evaluation mode, one in training mode if that can be run."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, whole_heads: bool = False
    ) -> None:
        self.given = (model, args, dict(kwargs))
        self.whole_heads = whole_heads
        self.eval = Scene(*probe_copy(*self.given))
        self.train: Scene | None = None
        self.settled = False  # whether both scenes are known to run
        self.notes: list[str] = []
        self.failure = ""

    def scene(self, mode: str) -> Scene:
        """The scene of a mode that was traced."""
        scene = self.eval if mode == "eval" else self.train
        assert scene is not None
        return scene

    def trace(self, decisions: Decisions) -> tuple[AtomTable, dict[str, Trace]]:
        """Run the network on labels in both modes."""
        table = self._table(decisions)
        try:
            traces = {"eval": self.eval.trace(table, decisions)}
        except Exception as error:
            if self.settled:
                raise
            self.eval = Scene(*in_own_precision(*self.given, error))
            table = self._table(decisions)
            traces = {"eval": self.eval.trace(table, decisions)}
        if traces["eval"].notes and not self.settled:
            table, traces["eval"] = self._own_way(table, traces["eval"], decisions)
        for scene in self._training_scenes():
            shadow = table.fork()  # a run that fails midway changes nothing
            try:
                traces["train"] = scene.trace(shadow, decisions)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                continue
            self.train, table = scene, shadow
            break
        else:
            if not self.settled or self.train is not None:
                self.notes.append(f"training mode was not traced, its forward failed ({self.failure})")
            self.train = None
        self.settled = True
        return table, traces

    def _table(self, decisions: Decisions) -> AtomTable:
        """A new table for a run under these decisions."""
        return AtomTable(choices=dict(decisions.choices), whole_heads=self.whole_heads)

    def _own_way(self, table: AtomTable, trace: Trace, decisions: Decisions) -> tuple[AtomTable, Trace]:
        """Where values decide which code runs: the run with the network's own weights, if it differs.

        Otherwise random weights are better, since no zeros among them hide a mistake.
        """
        model, args, kwargs = as_double(*self.given)
        scene = Scene(model, *randomized_inputs((args, kwargs)))
        fresh = self._table(decisions)
        own = scene.trace(fresh, decisions)
        if [record.site for record in own.records] == [record.site for record in trace.records]:
            return table, trace
        self.eval = scene
        return fresh, own

    def _training_scenes(self) -> list[Scene]:
        """Ways to run training mode, which may run other code (auxiliary heads), the cheapest first."""
        if self.settled:
            return [] if self.train is None else [self.train]
        light = Scene(*light_copy(self.eval.model, self.eval.args, self.eval.kwargs))
        return [batch for scene in (light, self.eval) for batch in self._both_batches(scene)]

    def _both_batches(self, scene: Scene) -> list[Scene]:
        """The example as it is, and twice in one batch, for norms that would see one value per channel."""
        args, kwargs = doubled((scene.args, dict(scene.kwargs)))
        return [
            Scene(scene.model, scene.args, scene.kwargs, training=True),
            Scene(scene.model, args, kwargs, training=True),
        ]
