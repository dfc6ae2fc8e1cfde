"""Inputs that run a few at a time, as fast as the processor allows, and give the same outputs."""

import torch
from torch import Tensor, nn

from deeppruning.graph.calls import as_call, portions, run_in_portions

PHOTOGRAPHS = torch.rand(20, 3, 224, 224, generator=torch.Generator().manual_seed(0))


class Counting(nn.Module):
    """Nested outputs; remembers how many inputs came at once."""

    def __init__(self, *, total: bool = False) -> None:
        super().__init__()
        self.total = total
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor]]:
        self.seen.append(len(x))
        means = x.mean((2, 3))
        return {"mean": means, "largest": (means.sum() if self.total else x.amax((1, 2, 3)),)}


def test_portions_cover_all_inputs_once_and_in_order():
    rows = portions(as_call(PHOTOGRAPHS))
    assert [(some.start, some.stop) for some in rows] == [(0, 16), (16, 20)]
    assert portions(as_call(torch.zeros(300, 3, 32, 32))) == [slice(0, 128), slice(128, 256), slice(256, 300)]
    assert portions(as_call(torch.zeros(0, 3, 32, 32))) == [slice(0, 0)]
    assert portions(as_call(PHOTOGRAPHS), "cuda") == [slice(0, 20)]
    assert portions(as_call(torch.zeros(60, 3, 224, 224)), "cuda") == [slice(0, 55), slice(55, 60)]


def test_nested_outputs_of_portions_are_those_of_all_inputs():
    network = Counting()
    outputs = run_in_portions(network, as_call(PHOTOGRAPHS))
    assert network.seen == [2, 16, 4]  # two to see how they may lie in memory
    assert torch.allclose(outputs["mean"], PHOTOGRAPHS.mean((2, 3)))
    assert torch.equal(outputs["largest"][0], PHOTOGRAPHS.amax((1, 2, 3)))


def test_an_output_over_all_inputs_is_computed_with_all_of_them():
    network = Counting(total=True)
    outputs = run_in_portions(network, as_call(PHOTOGRAPHS))
    assert network.seen == [2, 16, 20]
    assert torch.allclose(outputs["largest"][0], PHOTOGRAPHS.mean((2, 3)).sum())


class Padded(nn.Module):
    """Its output is as long as the longest of the inputs that came at once; a second one is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        self.seen.append(len(x))
        return x.flatten(1)[:, : int(x[:, 0, 0, 0].max())], None


def test_outputs_of_another_form_in_each_portion_are_computed_with_all_inputs():
    inputs, network = PHOTOGRAPHS.clone(), Padded()
    inputs[:, 0, 0, 0] = 5.0
    outputs, missing = run_in_portions(network, as_call(inputs))
    assert network.seen == [2, 16, 4] and outputs.shape == (20, 5) and missing is None
    inputs[19, 0, 0, 0] = 7.0
    outputs, missing = run_in_portions(network, as_call(inputs))
    assert network.seen[3:] == [2, 16, 4, 20] and outputs.shape == (20, 7) and missing is None
