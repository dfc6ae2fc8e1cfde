"""Whether an exported network still computes what the PyTorch one does, measured by running both."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph.trace.follow import tensors_in

TOLERANCE = 1e-4
BATCHES = (1, 3)  # one to trace, another to prove that the batch is free
PIXEL = 255.0


def check_parity(
    model: nn.Module,
    exported: Callable[[Tensor], Sequence[Tensor]],
    example: Tensor,
    *,
    pixels: bool,
    tolerance: float = TOLERANCE,
) -> float:
    """The largest difference of any output over random inputs; GraphError if it exceeds the tolerance."""
    largest = reach = 0.0
    for images in random_inputs(example, pixels=pixels):
        with torch.no_grad():
            expected, found = tensors_in(model(images)), exported(images)
        shapes = [[tuple(tensor.shape) for tensor in outputs] for outputs in (expected, found)]
        if shapes[0] != shapes[1]:
            raise GraphError(
                f"the exported network gives outputs of shape {shapes[1]} where PyTorch gives {shapes[0]} "
                f"for a batch of {len(images)}: its forward has a size written into it; nothing was written"
            )
        for ours, theirs in zip(expected, found, strict=True):
            difference = float((ours.double() - theirs.double()).abs().max()) if ours.numel() else 0.0
            largest = max(largest, math.inf if math.isnan(difference) else difference)
            reach = max(reach, float(ours.abs().max()) if ours.numel() else 0.0)
    if largest > tolerance:
        raise GraphError(
            f"the exported network differs from PyTorch by {largest:.1e} on outputs of up to {reach:.1e}, "
            f"over the tolerance of {tolerance:.0e}; nothing was written. For large outputs allow more"
        )
    return largest


def refuse_changing(model: nn.Module, example: Tensor, *, tolerance: float = TOLERANCE) -> None:
    """Refuse a network in evaluation mode whose answers depend on what it was asked before, or on chance.

    A file has no memory: it would agree with the first answer, or with some later one, and with no other.
    """
    asked, fresh = copy.deepcopy(model), copy.deepcopy(model)
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}
    images, others = (some[:1] for some in random_inputs(example, pixels=False))
    once, after, again = (_answer(asked, one) for one in (images, others, images))
    apart = max(_apart(once, again), _apart(after, _answer(fresh, others)))
    changed = [name for name, tensor in asked.named_buffers() if not torch.equal(tensor, before[name])]
    if apart == 0.0 or (apart <= tolerance and not changed):
        return
    why = f"it changes its own {', '.join(changed[:3])}" if changed else "by chance, or by what it remembers"
    raise GraphError(
        f"this network does not always answer the same input alike, in evaluation mode too ({why}): no file "
        "does the same, so nothing was written. Let it change nothing unless `self.training` is true"
    )


def _answer(model: nn.Module, images: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return [one.nan_to_num() for one in tensors_in(model(images))]  # copies, and comparable ones


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    if [tensor.shape for tensor in one] != [tensor.shape for tensor in other]:
        return math.inf
    pairs = zip(one, other, strict=True)
    return max((float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel()), default=0.0)


def random_inputs(example: Tensor, *, pixels: bool) -> list[Tensor]:
    """The same inputs on every call, like the example but for the batch; `pixels` are 0..255."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, *example.shape[1:]) for batch in BATCHES]
    if pixels:
        return [(torch.rand(shape, generator=generator) * PIXEL).round() for shape in shapes]
    return [torch.randn(shape, generator=generator).to(example.dtype) for shape in shapes]
