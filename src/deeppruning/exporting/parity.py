"""Whether an exported network still computes what the PyTorch one does, measured by running both."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deeppruning.errors import GraphError, InputError, describe_raised
from deeppruning.graph.trace.follow import tensors_in

TOLERANCE = 1e-4
BATCHES = (1, 3)  # one to trace, another to prove that the batch size is free


def check_parity(
    model: nn.Module,
    exported: Callable[[Tensor], Sequence[Tensor]],
    example: Tensor,
    *,
    pixels: bool,
    tolerance: float = TOLERANCE,
) -> float:
    """The largest difference of any output over random inputs; GraphError if it exceeds the tolerance."""
    largest = magnitude = 0.0
    for images in random_inputs(example, pixels=pixels):
        with torch.no_grad():
            expected, outputs = tensors_in(model(images)), exported(images)
        largest = max(largest, difference_of(expected, outputs))
        magnitude = max([magnitude, *(float(ours.abs().max()) for ours in expected if ours.numel())])
    if largest > tolerance:
        raise GraphError(
            f"the exported network differs from PyTorch by {largest:.1e} on outputs of up to "
            f"{magnitude:.1e}, over the tolerance of {tolerance:.0e}; nothing was written. "
            "For large outputs allow more"
        )
    return largest


def difference_of(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> float:
    """The largest difference of a file's outputs from PyTorch's; GraphError where shapes differ."""
    shapes = [[tuple(tensor.shape) for tensor in each] for each in (expected, outputs)]
    if shapes[0] != shapes[1]:
        raise GraphError(
            f"the exported network gives outputs of shape {shapes[1]} where PyTorch gives {shapes[0]}: its "
            "forward has a size, such as that of the batch, written into it; nothing was written"
        )
    difference = _largest_output_difference(expected, outputs)
    return math.inf if math.isnan(difference) else difference


def refuse_changing(model: nn.Module, example: Tensor, *, tolerance: float = TOLERANCE) -> None:
    """Refuse a network whose outputs in evaluation mode depend on earlier inputs, or on chance.

    A file has no memory: it could agree with one of the outputs only.
    """
    used, fresh = copy.deepcopy(model), copy.deepcopy(model)
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    images, others = (batch[:1] for batch in random_inputs(example, pixels=False))
    try:
        once, after, again = (_pytorch_outputs(used, batch) for batch in (images, others, images))
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"the network cannot run on inputs of shape {tuple(example.shape)}, {example.dtype}: "
            f"{describe_raised(error)}; give the example_input that it takes"
        ) from error
    difference = max(
        _largest_output_difference(once, again),
        _largest_output_difference(after, _pytorch_outputs(fresh, others)),
    )
    changed = [name for name, tensor in used.named_buffers() if not torch.equal(tensor, before[name])]
    if difference == 0.0 or (difference <= tolerance and not changed):
        return
    why = f"it changes its own {', '.join(changed[:3])}" if changed else "by chance, or by what it remembers"
    raise GraphError(
        f"this network does not always give the same output for the same input, even in evaluation mode "
        f"({why}): no file can do that, so nothing was written. Let it change nothing unless `self.training` "
        "is true"
    )


def _pytorch_outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [tensor.nan_to_num() for tensor in tensors_in(model(images))]  # copies that can be compared


def _largest_output_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    if [tensor.shape for tensor in ours] != [tensor.shape for tensor in theirs]:
        return math.inf
    pairs = [(a.double(), b.double()) for a, b in zip(ours, theirs, strict=True) if a.numel()]
    return float(torch.stack([(a - b).abs().max().cpu() for a, b in pairs]).max()) if pairs else 0.0


def random_inputs(example: Tensor, *, pixels: bool) -> list[Tensor]:
    """The same inputs on every call, of the example's shape but for the batch; `pixels` are 0..255."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, *example.shape[1:]) for batch in BATCHES]
    if pixels:
        return [(torch.rand(shape, generator=generator) * 255).round() for shape in shapes]
    return [torch.randn(shape, generator=generator).to(example.dtype) for shape in shapes]
