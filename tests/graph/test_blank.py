"""Runs of which only shapes matter compute no convolutions: their results have the shapes of real ones."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deeppruning.graph.atoms import AtomTable
from deeppruning.graph.trace.follow import Follower, execute_blank
from deeppruning.graph.trace.tracer import Trace, Tracer, run_on_labels

SMALL = st.integers(1, 3)


class Blank(Follower):
    """Executes nothing that is expensive."""

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return execute_blank(func, args, kwargs)


@settings(deadline=None, max_examples=40)
@given(
    dimensions=SMALL,
    kernel=SMALL,
    stride=SMALL,
    dilation=SMALL,
    padding=st.integers(0, 2),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    last=st.booleans(),
)
def test_a_blank_convolution_has_the_shape_of_a_real_one(
    dimensions: int, transposed: bool, last: bool, **options: int
) -> None:
    kinds = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d] if transposed else [
        nn.Conv1d, nn.Conv2d, nn.Conv3d,
    ]  # fmt: skip
    kernel = options.pop("kernel")
    layer: nn.Module = kinds[dimensions - 1](4, 6, kernel, stride=options.pop("stride"), **options)  # type: ignore[arg-type]
    image = torch.ones(2, 4, *[9, 8, 7][:dimensions])
    if last and dimensions == 2:
        image = image.to(memory_format=torch.channels_last)
    with torch.no_grad():
        real, blank = layer(image), Blank(layer).run(layer, (image,), {})
    assert (blank.shape, blank.stride(), blank.dtype) == (real.shape, real.stride(), real.dtype)
    skipped = not transposed and image.is_contiguous()
    assert bool((blank == 0).all()) is skipped


class Reader(nn.Module):
    """Reads its values in one of several ways, or not at all."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.way == "if":
            return x if x.sum() > 0 else -x
        if self.way == "list":
            return x * len(x.sum((0, 2, 3)).tolist())
        if self.way == "chosen":
            return x.flatten()[x.flatten() > 0].sum()
        return x.relu()


def traced(way: str) -> Trace:
    model = Reader(way).eval()
    with torch.no_grad():
        return run_on_labels(model, (torch.ones(1, 3, 5, 5),), {}, Tracer(model, AtomTable()))


def test_a_run_that_depends_on_values_is_known() -> None:
    found = {way: traced(way).by_shapes for way in ("none", "if", "list", "chosen")}
    assert found == {"none": True, "if": False, "list": False, "chosen": False}
