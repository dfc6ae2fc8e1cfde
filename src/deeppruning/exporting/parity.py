"""Whether an exported network still computes what the PyTorch one does, measured by running both."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deeppruning.conversion.onnx_graph import tensors_in
from deeppruning.errors import GraphError

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


def random_inputs(example: Tensor, *, pixels: bool) -> list[Tensor]:
    """The same inputs on every call, like the example but for the batch; `pixels` are 0..255."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, *example.shape[1:]) for batch in BATCHES]
    if pixels:
        return [(torch.rand(shape, generator=generator) * PIXEL).round() for shape in shapes]
    return [torch.randn(shape, generator=generator).to(example.dtype) for shape in shapes]
