"""Run a network once, operation by operation, with labels beside its activations.

The run happens below Python's view of the network (`TorchDispatchMode`), so it does not matter how
the forward method is written: what counts is what is executed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from deeppruning.graph import operations
from deeppruning.graph import rules_elementwise as elementwise_rules
from deeppruning.graph import rules_layers as layer_rules
from deeppruning.graph.atoms import AtomTable, Ids
from deeppruning.graph.call import Call
from deeppruning.graph.labels import Channels, Constant, Fixed, Origin, Payload

Rule = Callable[[Call], list[Payload]]

LAYER_RULES: dict[str, Rule] = {
    "convolution": layer_rules.convolution,
    "mm": layer_rules.matmul,
    "addmm": layer_rules.matmul,
    "bmm": layer_rules.matmul,
    "baddbmm": layer_rules.matmul,
    "linear": layer_rules.matmul,
    "native_batch_norm": layer_rules.batch_norm,
    "cudnn_batch_norm": layer_rules.batch_norm,
    "miopen_batch_norm": layer_rules.batch_norm,
    "_native_batch_norm_legit": layer_rules.batch_norm,
    "_native_batch_norm_legit_no_training": layer_rules.batch_norm,
    "_batch_norm_with_update": layer_rules.batch_norm,
    "_batch_norm_no_update": layer_rules.batch_norm,
    "native_layer_norm": layer_rules.layer_norm,
    "native_group_norm": layer_rules.group_norm,
}


@dataclass
class Record:
    """One executed operation: enough to compare it with the same operation of a thin network."""

    name: str
    layer: str
    modules: tuple[str, ...]  # the call stack of submodules, outermost first
    inputs: list[Channels]
    outputs: list[Channels | None]
    shapes: list[tuple[int, ...]]
    owner: tuple[object, ...]


@dataclass
class Trace:
    """What a run left behind besides the atom table."""

    records: list[Record] = field(default_factory=list)
    multiply_adds: dict[str, int] = field(default_factory=dict)  # parameter -> uses of each element
    other_multiply_adds: int = 0  # of products that are never cut
    conv_weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    output: Any = None


def find_rule(call: Call) -> Rule:
    """The rule for an operation; what is not known freezes what it touches."""
    if call.name in LAYER_RULES:
        return LAYER_RULES[call.name]
    if call.name in operations.MOVES:
        return elementwise_rules.move
    if call.name in operations.FACTORIES:
        return lambda call: [Constant()] * len(call.outputs)
    if call.name in operations.ALONG:
        return elementwise_rules.along
    if call.name.startswith(operations.SPATIAL_PREFIXES):
        return elementwise_rules.spatial
    if elementwise_rules.is_elementwise(call):
        return elementwise_rules.elementwise
    return lambda call: call.freeze_inputs(f"{call.place} is not understood")


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Carries labels through a run and writes down every operation.

    `detached` names parameter-free submodules that are treated as black boxes: their input is read
    at full size and their output gets atoms of its own (the thin network wraps them accordingly).
    `on_output` may replace the results of an operation, given their payloads: the proof uses it to
    silence channels.
    """

    def __init__(
        self,
        model: nn.Module,
        table: AtomTable,
        *,
        mode: str,
        detached: frozenset[str] = frozenset(),
        on_output: Callable[[Call, list[Payload]], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.mode = mode
        self.detached = detached
        self.on_output = on_output
        self.trace = Trace()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.payloads: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.payloads[tensor] = Origin(name, tuple(tensor.shape))
        self.stack: list[tuple[str, nn.Module]] = []
        self.inside_detached = 0

    def lookup(self, tensor: Tensor) -> Payload:
        """The payload of a tensor; one that came from nowhere must keep its size."""
        found = self.payloads.get(tensor, None)  # type: ignore[no-untyped-call]
        if found is None:
            return Fixed("a tensor that is neither parameter nor buffer")
        assert isinstance(found, (Channels, Origin, Constant, Fixed))
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if not outputs or self.inside_detached:
            return result
        layer, module = self.stack[-1] if self.stack else ("", None)
        call = Call(
            name=func._schema.name.removeprefix("aten::").rstrip("_"),
            function=func,
            args=_by_name(func, args, kwargs),
            outputs=outputs,
            table=self.table,
            lookup=self.lookup,
            layer=layer,
            module=module,
            owner=(self.mode, len(self.trace.records)),
        )
        inputs = call.inputs()
        self._count(call, func, args, kwargs, result)
        payloads = find_rule(call)(call)
        if self.on_output is not None:
            self.on_output(call, payloads)
        for tensor, payload in zip(outputs, payloads, strict=True):
            self.payloads[tensor] = payload
        self._write_down(call, inputs, payloads)
        return result

    def _write_down(self, call: Call, inputs: list[Channels], payloads: list[Payload]) -> None:
        channels = [payload if isinstance(payload, Channels) else None for payload in payloads]
        shapes = [tuple(tensor.shape) for tensor in call.outputs]
        modules = tuple(name for name, _ in self.stack)
        self.trace.records.append(
            Record(call.name, call.layer, modules, inputs, channels, shapes, call.owner)
        )

    def _count(self, call: Call, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Multiply-adds: the uses of each weight element, or a fixed number where none is cut."""
        counter = flop_registry.get(func.overloadpacket)
        if counter is None:
            return
        multiply_adds = counter(*args, **kwargs, out_val=result) // 2
        weights = [payload for payload in map(self.lookup, call.tensors()) if isinstance(payload, Origin)]
        weight = next((origin for origin in weights if len(origin.shape) > 1), None)
        size = 1
        for extent in weight.shape if weight else ():
            size *= extent
        if weight is None or multiply_adds % size:
            self.trace.other_multiply_adds += multiply_adds
            return
        uses = self.trace.multiply_adds
        uses[weight.name] = uses.get(weight.name, 0) + multiply_adds // size

    def enter(self, module: nn.Module, inputs: Any) -> None:
        """A submodule starts."""
        name = self.names.get(id(module), "")
        self.stack.append((name, module))
        if name in self.detached:
            self.inside_detached += 1

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        """A submodule ends; a detached one hands out atoms of its own."""
        name, _ = self.stack.pop()
        if name not in self.detached:
            return None
        self.inside_detached -= 1
        if self.inside_detached:
            return None
        incoming = self.lookup(inputs[0])
        ids = self.table.issue((name, "output"), output.shape[1], kind="module", layer=name)
        self.table.bind(f"{name}.output", 1, ids)
        if isinstance(incoming, Channels):
            self.table.bind(f"{name}.input", 1, incoming.ids)
        payload = Channels(1, ids)
        owner = (self.mode, len(self.trace.records))
        with _disable_current_modes():  # what happens here is no operation of the network
            # A module may hand back its very input; the copy keeps the two sets of labels apart.
            fresh = output.clone()
            call = Call("module", None, {}, [fresh], self.table, self.lookup, name, module, owner)
            if self.on_output is not None:
                self.on_output(call, [payload])
        self.payloads[fresh] = payload
        inputs_seen = [incoming] if isinstance(incoming, Channels) else []
        self._write_down(call, inputs_seen, [payload])
        return fresh


def _by_name(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the operation's schema, defaults left out."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


@contextmanager
def follow_modules(enter: Callable[..., Any], leave: Callable[..., Any]) -> Iterator[None]:
    """Call back whenever any submodule starts or ends, without touching the network itself."""
    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def run_on_labels(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], tracer: Tracer
) -> Trace:
    """Run the model under the tracer; whatever reaches the outputs must keep its size."""
    for leaf in tree_leaves((args, dict(kwargs))):
        if isinstance(leaf, Tensor):
            tracer.payloads[leaf] = Fixed("the network's input")
    with torch.no_grad(), follow_modules(tracer.enter, tracer.leave), tracer:
        tracer.trace.output = model(*args, **kwargs)
    for leaf in tree_leaves(tracer.trace.output):
        if isinstance(leaf, Tensor):
            payload = tracer.lookup(leaf)
            if isinstance(payload, Channels):
                tracer.table.freeze(payload.ids, "the network's output")
    return tracer.trace


def atoms_of(channels: list[Channels | None]) -> list[Ids]:
    """The atoms of those payloads that carry channels."""
    return [payload.ids for payload in channels if payload is not None]
