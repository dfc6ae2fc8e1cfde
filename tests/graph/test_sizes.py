"""Forward code that decides by a number of channels: every width is right, or frozen, or noted."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.reads import Reads
from deeppruning.graph.trace.sizes import Ratio, Size, SizeBook, value_of
from graph_checks import masked_by_hooks
from graph_networks import Net
from graph_networks.parts import around

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = torch.zeros(2, 3, 5, 5)
TABLE = [1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def between(net: Net, x: Tensor) -> Tensor:
    """Two tests in a row, of which the full network takes only the first."""
    if x.shape[1] > 6:
        return x
    if x.shape[1] == 5:
        return x * 2
    return x


def by_remainder(net: Net, x: Tensor) -> Tensor:
    return x * (2 if x.shape[1] % 4 == 3 else 1)


DECIDED: dict[str, Callable[[Net, Tensor], Tensor]] = {
    "one width": lambda net, x: x * 2 if x.shape[1] == 5 else x,
    "not one width": lambda net, x: x if x.shape[1] != 3 else x * 2,
    "two widths": lambda net, x: x * 2 if x.size(1) in (3, 5) else x,
    "in a set": lambda net, x: x * 2 if x.size(1) in {4, 6} else x,
    "remainder": by_remainder,
    "remainder as factor": lambda net, x: x * (1 + (x.shape[1] % 3 == 0)),
    "quotient": lambda net, x: x * 2 if x.shape[1] // 2 == 2 else x,
    "factor from a quotient": lambda net, x: x * (1 + x.shape[1] // 3 % 2),
    "dictionary": lambda net, x: x * {5: 2.0, 7: 3.0}.get(x.shape[1], 1.0),
    "list": lambda net, x: x * TABLE[x.shape[1]],
    "loop": lambda net, x: x * (2 if sum(1 for i in range(x.shape[1])) == 4 else 1),
    "length": lambda net, x: x * 2 if len(x[0]) == 5 else x,
    "number of elements": lambda net, x: x * 2 if x.numel() == 2 * 5 * 25 else x,
    "unpacked": lambda net, x: x * 2 if [*x.shape][1] == 3 else x,
    "whole shape": lambda net, x: x * 2 if x.shape == (2, 5, 5, 5) else x,
    "between": lambda net, x: x * 2 if 3 < x.shape[1] < 6 else x,
    "one after the other": between,
    "divided": lambda net, x: x * 2 if 0.6 < x.shape[1] / 8 < 0.7 else x,
    "as float": lambda net, x: x * 2 if float(x.shape[1]) == 5.0 else x,
    "as whole number": lambda net, x: x * 2 if int(x.shape[1]) == 5 else x,
    "square root": lambda net, x: x * 2 if math.isqrt(x.shape[1]) ** 2 == x.shape[1] == 4 else x,
    "common divisor": lambda net, x: x * 2 if math.gcd(x.shape[1], 10) == 5 else x,
    "written out": lambda net, x: x * 2 if f"{x.shape[1]}" == "5" else x,
    "match": lambda net, x: x * (2 if (x.shape[1] - 5) == 0 else 1),
    "minimum": lambda net, x: x * (1 + max(0, 5 - abs(5 - x.shape[1]) * 5)),
    "weight": lambda net, x: x * 2 if net.stem[0].weight.shape[0] == 5 else x,
    "bias of a norm": lambda net, x: x * 2 if len(net.stem[1].bias) == 3 else x,
    "attribute": lambda net, x: x * 2 if net.stem[0].out_channels == 5 else x,
    "attribute of a reader": lambda net, x: x * 2 if net.tail[0].in_channels in (5, 6) else x,
    "attribute of a norm": lambda net, x: x * 2 if net.stem[1].num_features % 5 == 0 else x,
    "shape of a weight": lambda net, x: x * 2 if net.tail[0].weight.shape == (6, 5, 3, 3) else x,
    "stride": lambda net, x: x * 2 if x.stride(0) == 5 * 25 else x,
    "bytes": lambda net, x: x * 2 if x.nbytes == 2 * 5 * 25 * 8 else x,
    "two sizes": lambda net, x: x * 2 if x.shape[1] == net.tail[0].out_channels - 2 else x,
}


def wrong_cuts(model: nn.Module, graph: ChannelGraph, genomes: np.ndarray) -> int:
    """How many of these cuts differ from zeroed filters."""
    images = torch.randn(IMAGES.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wrong = 0
    with torch.no_grad():
        for genome in graph.repair(genomes):
            due = masked_by_hooks(model, graph, genome, images)
            wrong += not torch.allclose(graph.prune(genome)(images), due, rtol=1e-9, atol=1e-9)
    return wrong


def genomes_of(graph: ChannelGraph) -> np.ndarray:
    """Every number of first filters alone, and random ones."""
    generator = np.random.default_rng(0)
    stairs = np.arange(graph.num_genes) < np.arange(1, graph.num_genes)[:, None]
    return np.concatenate([stairs, generator.random((20, graph.num_genes)) < generator.random((20, 1))])


@pytest.mark.parametrize("name", DECIDED)
def test_no_width_is_cut_wrongly_where_code_decides_by_it(name):
    torch.manual_seed(0)
    model = around(DECIDED[name], 8).double().eval()
    graph = ChannelGraph(model, IMAGES)
    assert (graph.layer_genes()["stem.0"], graph.num_genes) == ([-1] * 8, 6) or "size" in name
    assert wrong_cuts(model, graph, genomes_of(graph)) == 0


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: x if x.shape[1] > 0 else x * 2,
        lambda net, x: x.reshape(x.shape[0], x.shape[1], -1).reshape(x.shape),
        lambda net, x: x.view(*x.shape[:2], x.shape[2:].numel()).view(x.size()),
        lambda net, x: x * torch.ones(x.shape[1], dtype=x.dtype)[:, None, None],
        lambda net, x: x * 2 if x.shape[1] <= net.stem[0].out_channels else x,
        lambda net, x: torch.cat([x[:, i : i + 1] for i in range(x.shape[1])], 1) if len(x) > 9 else x,
        lambda net, x: x + 0 * x.shape[1] // 3,
    ],
    ids=["always", "views", "products", "ones", "alike", "never", "nothing"],
)
def test_what_every_width_answers_alike_freezes_nothing(run):
    torch.manual_seed(0)
    model = around(run, 8).double().eval()
    graph = ChannelGraph(model, IMAGES)
    assert graph.num_genes == 14
    assert graph.notes == []
    assert wrong_cuts(model, graph, genomes_of(graph)) == 0


def test_very_wide_layers_are_tried_where_answers_change_and_the_rest_is_noted():
    def harmless(net: Net, x: Tensor) -> Tensor:
        return x[:, :] if x.shape[1] == 77 else x

    torch.manual_seed(0)
    graph = ChannelGraph(around(harmless, 100), IMAGES)
    assert graph.num_genes == 106
    (note,) = graph.notes
    assert note.startswith("forward decides by a number of channels: tried at ")
    assert note.endswith(" of 100 widths")
    wrong = ChannelGraph(around(lambda net, x: x * 2 if x.shape[1] == 77 else x, 100), IMAGES)
    assert wrong.layer_genes()["stem.0"] == [-1] * 100


def test_what_is_decided_without_harm_is_noted_since_other_layers_may_be_asked_then():
    def run(net: Net, x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] == 3 and net.tail[0].out_channels == 4 else x

    def compared(net: Net, x: Tensor) -> Tensor:
        return x[:, :] if x.shape[1] < net.tail[0].out_channels else x

    notes = [ChannelGraph(around(each, 8), IMAGES).notes for each in (run, compared)]
    assert notes == [
        ["forward decides by a number of channels: tried at 8 of 8 widths"],
        ["forward decides by the numbers of channels of several layers"],
    ]


WIDE = [1.0] * 20 + [2.0] + [1.0] * 50


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: x * WIDE[x.shape[1]],
        lambda net, x: x * (2 if sum(1 for _ in range(x.shape[1])) == 20 else 1),
        lambda net, x: x * 2 if int(0.5 * x.shape[1]) == 10 else x,
    ],
    ids=["list", "loop", "half"],
)
def test_uses_that_python_does_not_show_are_found_up_to_sixty_four_channels(run):
    torch.manual_seed(0)
    graph = ChannelGraph(around(run, 40), IMAGES)
    assert (graph.layer_genes()["stem.0"], graph.num_genes) == ([-1] * 40, 6)


X = torch.zeros(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("read", "dimensions"),
    [
        (lambda: X.shape[0], [0]),
        (lambda: X.shape[-1], [3]),
        (lambda: X.shape[2:], [2, 3]),
        (lambda: X.shape[1:3].numel(), [1, 2]),
        (lambda: X.size(1), [1]),
        (lambda: X.shape, [None]),
        (lambda: [*X.shape], [None]),
        (lambda: X.numel(), [None]),
        (lambda: len(X), [0]),
    ],
)
def test_only_what_code_takes_from_a_shape_is_read(read, dimensions):
    found: list[int | None] = []

    def note(tensor: Tensor, dimension: int | None, value: Any) -> Any:
        found.append(dimension)
        return value

    due = read()
    with Reads(note, lambda tensor, name: None, lambda values: None):
        assert read() == due
    assert found == dimensions


def test_a_test_in_training_mode_alone_is_tried_too():
    def run(net: Net, x: Tensor) -> Tensor:
        return x[:, :4] if net.training and x.shape[1] == 5 else x

    graph = ChannelGraph(around(run, 8), IMAGES)
    assert graph.layer_genes()["stem.0"] == [-1] * 8


def test_sizes_compute_as_numbers_do_and_copies_forget_the_book():
    book = SizeBook()
    width = book.size(7, ("weight", 0))
    results: list[Any] = [
        width + 1,
        1 - width,
        width * 2,
        width // 2,
        -width,
        width % 4,
        width**2,
        20 // width,
    ]
    assert [int(value) for value in results] == [8, -6, 14, 3, -7, 3, 49, 2]
    assert all(type(value) is Size for value in results)
    assert [type(value) for value in (width / 2, width * 0.5, width**-1)] == [Ratio] * 3
    assert divmod(width, 4) == (1, 3)
    assert (round(width / 3, 1), math.ceil(width / 2), abs(-width), math.floor(width / 2)) == (2.3, 4, 7, 3)
    assert torch.zeros(2, width, 3).view(2, 3, width).shape == (2, 3, 7)
    assert torch.equal(torch.ones(2) * (width / 2), torch.full((2,), 3.5))
    assert type(copy.deepcopy(width)) is int


def test_every_question_can_be_asked_of_other_widths():
    book = SizeBook()
    width = book.size(8, ("weight", 0))
    assert (width // 3 == 2, width >= 3, bool(width - 8), {8: "a"}[width]) == (True, True, False, "a")
    widths = np.arange(1, 10)
    found = {formula: value_of(formula, {0: widths}).tolist() for formula in book.questions}
    assert found["eq", ("floordiv", ("size", 0), 3), 2] == [value // 3 == 2 for value in range(1, 10)]
    assert found["truth", ("sub", ("size", 0), 8)] == [value != 8 for value in range(1, 10)]
    assert found["pos", ("size", 0)] == list(range(1, 10))
    assert found["ge", ("size", 0), 3] == [value >= 3 for value in range(1, 10)]
