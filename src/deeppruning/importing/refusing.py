"""Files that cannot be rebuilt are refused before any work, naming operation, node and how many there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from deeppruning.errors import InputError

DOMAINS = {"", "ai.onnx"}  # of operations that are defined by ONNX itself
OPSETS = range(7, 26)
QUANTISED = "QLinear", "QGemm", "DynamicQuantize", "ConvInteger", "MatMulInteger", "QuantizeLinear"
CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
# How much these give depends on the contents: two networks cannot be compared behind them.
SELECTING = {"NonMaxSuppression", "NonZero", "Compress", "Unique"}


def operation_of(node: Any) -> str:
    """The operation of a node, with its domain where that is not ONNX's own."""
    return str(node.op_type if node.domain in DOMAINS else f"{node.domain}.{node.op_type}")


def name_of(node: Any, place: int) -> str:
    """The name of a node; one without a name is called by its operation and place."""
    return str(node.name or f"{node.op_type}_{place}")


def refuse_foreign(path: Path, graph: Any, opset: int, supported: set[str]) -> None:
    """Raise for quantised files, control flow, operations not `supported` and opsets out of range."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for place, node in enumerate(graph.node):
        counts[operation_of(node)] += 1
        first.setdefault(operation_of(node), name_of(node, place))
    for op, count in counts.items():
        where = _nodes(count, first[op])
        if op.rpartition(".")[2].startswith(QUANTISED):
            raise InputError(
                f"{path} is quantised already ({op}: {where}); prune the float file, then quantise that"
            )
        if op in CONTROL_FLOW:
            raise InputError(
                f"{path} has control flow ({op}: {where}), which is not supported; export it without"
            )
    of_data = _dequantised_data(graph)
    if of_data:
        raise InputError(
            f"{path} is quantised already (DequantizeLinear of data: {_nodes(len(of_data), of_data[0])}); "
            "prune the float file, then quantise that"
        )
    strange = {op: count for op, count in counts.items() if op not in supported}
    if strange:
        listed = ", ".join(f"{op} ({_nodes(count, first[op])})" for op, count in strange.items())
        raise InputError(f"{path} uses operations that are not supported: {listed}{_way_out(path, graph)}")
    if opset not in OPSETS:
        raise InputError(f"{path} has opset {opset}; those from {OPSETS[0]} to {OPSETS[-1]} are supported")


def _way_out(path: Path, graph: Any) -> str:
    """For a file that ends in a selection of boxes: the command that writes what comes before it."""
    known = {tensor.name for tensor in graph.initializer} | {""}
    inputs = [info.name for info in graph.input if info.name not in known]
    behind: set[str] = set()
    entering: list[str] = []
    for node in graph.node:
        if node.op_type == "Constant" or (node.input and known.issuperset(node.input)):
            known.update(node.output)
        elif node.op_type in SELECTING or not behind.isdisjoint(node.input):
            entering += [name for name in node.input if name not in known | behind]
            behind.update(node.output)
    if not behind:
        return ""
    entering += [info.name for info in graph.output if info.name not in behind]
    ends = list(dict.fromkeys(entering))
    call = f"onnx.utils.extract_model({str(path)!r}, 'before.onnx', {inputs}, {ends})"
    return (
        ". How much a selection gives depends on the picture; thin the part before it: "
        f'python -c "import onnx; {call}"'
    )


def _nodes(count: int, first: str) -> str:
    """How many nodes, and the first, in words."""
    return f"1 node, {first!r}" if count == 1 else f"{count} nodes, the first {first!r}"


def _dequantised_data(graph: Any) -> list[str]:
    """The nodes that dequantise values which are computed; weights that are stored so are folded."""
    constant = {tensor.name for tensor in graph.initializer} | {""}
    names = []
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant" or (node.input and constant.issuperset(node.input)):
            constant.update(node.output)
        elif node.op_type == "DequantizeLinear":
            names.append(name_of(node, place))
    return names
