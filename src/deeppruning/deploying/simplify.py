"""An ONNX graph without what is known beforehand: constants worked out, zeros not added, nothing not joined.

onnxruntime's own basic rewriting (constant folding, fusions into convolutions; operations of the ONNX
standard only) does most of it; what thin networks leave besides is done here, each case exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.deploying.onnx_graph import require
from deeppruning.runs.leftovers import scratch_folder

ELEMENTWISE = ("Add", "Sub", "Mul", "Div")
STANDARD = ("", "ai.onnx")


def simplified(content: bytes) -> bytes:
    """A file's content rewritten; the caller checks what it computes."""
    onnx = require("onnx")
    model = _rewritten(onnx.load_from_string(content))
    # What one look takes out shows the next one more: a spread constant, then that it was zero.
    while simplify(model.graph, onnx.shape_inference.infer_shapes(model).graph):
        model = _rewritten(model)
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def _rewritten(model: Any) -> Any:
    """After onnxruntime's basic rewriting; as it was where that leaves the standard."""
    onnx, runtime = (require(name) for name in ("onnx", "onnxruntime"))
    with scratch_folder() as folder:
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folder / "rewritten.onnx")
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = onnx.load(options.optimized_model_filepath)
    if any(node.domain not in STANDARD for node in found.graph.node):
        return model
    others = [entry for entry in found.opset_import if entry.domain not in STANDARD]
    for entry in others:
        found.opset_import.remove(entry)
    return found


def simplify(graph: Any, inferred: Any) -> int:
    """Take out, in place, what thin networks leave behind; gives the number of changes.

    `inferred` is the same graph with the shapes that are known.
    """
    shapes = {
        value.name: _shape(value) for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    pass_ = _Pass(graph, shapes)
    for node in list(graph.node):
        pass_.visit(node)
    pass_.drop_unread()
    return pass_.changes


class _Pass:
    """One look at every operation of a graph, in order."""

    def __init__(self, graph: Any, shapes: dict[str, tuple[int | None, ...] | None]) -> None:
        onnx = require("onnx")
        self.graph = graph
        self.shapes = shapes
        self.values: dict[str, NDArray[Any]] = {
            tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer
        }
        for name, value in self.values.items():
            shapes[name] = value.shape
        self.to_tensor = onnx.numpy_helper.from_array
        self.changes = 0

    def visit(self, node: Any) -> None:
        """Change what can be changed about one operation."""
        if node.op_type == "Concat":
            self._without_empty_parts(node)
        elif node.op_type in ("Add", "Sub"):
            self._without_zeros(node)
        elif node.op_type == "Mul":
            self._scaled_into_convolution(node)
        elif node.op_type == "Expand":
            self._widened_by_reader(node)
        elif node.op_type == "Relu":
            self._rectified_before(node)

    def _without_empty_parts(self, node: Any) -> None:
        """A part without channels adds nothing to those it is joined with."""
        full = [name for name in node.input if 0 not in (self.shapes.get(name) or ())]
        if full and len(full) < len(node.input):
            self.changes += 1
            if len(full) == 1:
                self._bypass(node, full[0])
            else:
                del node.input[:]
                node.input.extend(full)

    def _without_zeros(self, node: Any) -> None:
        """Zeros that do not widen what they are added to."""
        pairs = [(0, 1)] if node.op_type == "Sub" else [(0, 1), (1, 0)]
        for kept, other in pairs:
            zeros = self.values.get(node.input[other])
            known = zeros is not None and zeros.dtype.kind == "f" and not zeros.any()
            if known and self._same_shape(node.input[kept], node.output[0]):
                self.changes += 1
                self._bypass(node, node.input[kept])
                return

    def _widened_by_reader(self, node: Any) -> None:
        """A constant that is spread only to meet something of full size, which spreads it by itself."""
        readers = list(self._readers(node.output[0]))
        value = self.values.get(node.input[0])
        if value is None or not readers:
            return
        # How wide it is spread is often worked out while the network runs; a wrong guess fails the check.
        fitting = (
            reader.op_type in ELEMENTWISE
            and any(name != node.output[0] and self._covers(name, value.shape) for name in reader.input)
            for reader in readers
        )
        if all(fitting):
            self.changes += 1
            self._bypass(node, node.input[0])

    def _scaled_into_convolution(self, node: Any) -> None:
        """A factor for each channel that only one convolution reads: padding is zero, scaled or not."""
        for kept, other in ((0, 1), (1, 0)):
            factor = self.values.get(node.input[other])
            readers = list(self._readers(node.output[0]))
            if factor is None or len(readers) != 1 or readers[0].op_type != "Conv":
                continue
            conv = readers[0]
            weight = self.values.get(conv.input[1])
            alone = conv.input[0] == node.output[0] and len(list(self._readers(conv.input[1]))) == 1
            if weight is None or not alone or not self._same_shape(node.input[kept], node.output[0]):
                continue
            groups = next((entry.i for entry in conv.attribute if entry.name == "group"), 1)
            channels = weight.shape[1]
            if groups != 1 or factor.size not in (1, channels) or _channel_last(factor, weight.ndim):
                continue
            scaled = weight * factor.reshape(1, -1, *[1] * (weight.ndim - 2))
            self._set(conv.input[1], scaled.astype(weight.dtype))
            self.changes += 1
            self._bypass(node, node.input[kept])
            return

    def _rectified_before(self, node: Any) -> None:
        """What is rectified already: a block that lost its branch leaves one rectifier behind another."""
        if any(maker.op_type == "Relu" and node.input[0] in maker.output for maker in self.graph.node):
            self.changes += 1
            self._bypass(node, node.input[0])

    def drop_unread(self) -> None:
        """Operations and constants that nothing depends on."""
        needed = {value.name for value in self.graph.output}
        for node in reversed(list(self.graph.node)):
            if needed & set(node.output):
                needed.update(node.input)
            else:
                self.graph.node.remove(node)
        for tensor in list(self.graph.initializer):
            if tensor.name not in needed:
                self.graph.initializer.remove(tensor)
        del self.graph.value_info[:]

    def _readers(self, name: str) -> Iterator[Any]:
        return (node for node in self.graph.node if name in node.input)

    def _bypass(self, node: Any, name: str) -> None:
        """Whoever reads the operation reads this value instead; an output of the graph keeps its name."""
        if any(value.name == node.output[0] for value in self.graph.output):
            node.op_type = "Identity"
            del node.input[:]
            node.input.append(name)
            del node.attribute[:]
            return
        for reader in self._readers(node.output[0]):
            for place, given in enumerate(reader.input):
                if given == node.output[0]:
                    reader.input[place] = name
        self.graph.node.remove(node)

    def _same_shape(self, one: str, other: str) -> bool:
        """Whether two values are known to be of one shape; a free batch is the same for all."""
        ours, theirs = self.shapes.get(one), self.shapes.get(other)
        return ours is not None and ours == theirs and sum(size is None for size in ours) <= 1

    def _covers(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether a value is of full size beside a smaller one of this shape."""
        known = self.shapes.get(name)
        if known is None or len(known) < len(shape):
            return False
        ends = known[len(known) - len(shape) :]
        return all(size in (1, whole) for size, whole in zip(shape, ends, strict=True))

    def _set(self, name: str, value: NDArray[Any]) -> None:
        self.values[name] = value
        for tensor in self.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(self.to_tensor(np.ascontiguousarray(value), name))


def _channel_last(factor: NDArray[Any], dimensions: int) -> bool:
    """Whether a factor of more than one value lies along another dimension than the channels."""
    if factor.size == 1:
        return False
    padded = (1,) * (dimensions - factor.ndim) + factor.shape
    return len(padded) != dimensions or padded[1] != factor.size


def _shape(value: Any) -> tuple[int | None, ...] | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim)
