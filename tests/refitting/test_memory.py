"""The memory that a refit takes: what is counted is what is recorded, and the limit holds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call
from deeppruning.refitting import Reference, refit
from deeppruning.refitting.memory import CANDIDATES, THOROUGH
from deeppruning.refitting.probing import probe
from deeppruning.refitting.reference import probe_original


class Summed(nn.Module):
    """A branch that is added to what it reads; its 3x3 layers have places that outnumber those looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.inner, self.outer = nn.Conv2d(6, 10, 3, padding=1, groups=2), nn.Conv2d(10, 6, 1)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head((x + self.outer(torch.relu(self.inner(x)))).mean((2, 3)))


torch.manual_seed(0)
GRAPH = ChannelGraph(Summed().eval(), torch.zeros(1, 3, 16, 16))
SHOWN = probe_original(GRAPH, torch.randn(2, 3, 16, 16))


def recorded_bytes(reference: Reference) -> int:
    kept = 0
    for record in reference.layers.values():
        tensors = [record.answers, record.reads, record.partner.answers if record.partner else None]
        kept += sum(tensor.nbytes for tensor in tensors if tensor is not None)
    return kept


def test_what_is_counted_is_what_is_recorded():
    for count, thorough in ((16, False), (50, False), (50, True)):
        reference = Reference.of(GRAPH, torch.randn(count, 3, 16, 16), thorough=thorough)
        density = THOROUGH if thorough else CANDIDATES
        counted = sum(layer.recorded(count, density) for layer in SHOWN.layers)
        assert counted == recorded_bytes(reference) > 0


def test_solving_counts_rows_and_sums():
    layer = next(layer for layer in SHOWN.layers if layer.groups == 2)
    assert (layer.unknowns, layer.filters, layer.places) == (27, 10, 256)
    rows = 50 * 8  # 8 places of each input
    assert layer.solved(50, CANDIDATES) == 3 * rows * (2 * 27 + 10) * 4 + 3 * 8 * 27**2 * 2


@settings(max_examples=50, deadline=None)
@given(memory=st.integers(0, 2**26), most=st.integers(16, 400))
def test_room_is_the_most_inputs_that_fit(memory, most):
    for density in (CANDIDATES, THOROUGH):
        room = SHOWN.room(memory, most, density)
        assert 16 <= room <= most
        assert room == 16 or SHOWN.memory(room, density) <= memory
        assert room == most or SHOWN.memory(room + 1, density) > memory


class Viewed(nn.Module):
    """Views of its input and of its weights, which are there anyway, come before small activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 512), nn.Linear(512, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x.unsqueeze(1).flatten(1))))


def test_weights_and_other_inputs_are_not_memory_of_an_input():
    shown = [
        probe(Viewed().eval(), as_call(torch.randn(count, 64)))  # of these inputs, two are run
        for count in (2, 5000)
    ]
    assert [(each.waiting, each.working) for each in shown] == 2 * [(4 * 512, 2 * 4 * 512)]


class Sparse(nn.Module):
    """Multiplies by a sparse matrix, whose numbers do not lie in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mix", torch.eye(6).to_sparse())
        self.first, self.head = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(torch.sparse.mm(self.mix.t(), x.mT).mT)))


def test_sparse_tensors_are_no_obstacle():
    shown = probe(Sparse().eval(), as_call(torch.randn(20, 6)))
    assert [layer.filters for layer in shown.layers] == [12, 2] and shown.working > 0


class Headed(nn.Module):
    """Layers that are never solved: too many channels, called twice, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 3, 2, stride=2)
        self.twice, self.once = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(9216, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.once(self.twice(self.twice(self.up(x)))).flatten(1))


def test_layers_that_are_never_solved_take_no_memory():
    model = Headed().eval()
    shown = probe(model, as_call(torch.randn(2, 3, 24, 24)))
    assert [(layer.unknowns, layer.filters) for layer in shown.layers] == [(27, 4)]
    graph = ChannelGraph(model, torch.zeros(1, 3, 24, 24))
    reference = Reference.of(graph, torch.randn(40, 3, 24, 24), memory=2**24)
    assert reference.count == 40 and [*reference.layers] == ["once"]
    assert "9216 channels, more than the 8192" in reference.left["head"]


def test_fewer_inputs_are_used_where_memory_is_short():
    images = torch.randn(200, 3, 16, 16)
    memory = SHOWN.memory(60, CANDIDATES)
    assert Reference.of(GRAPH, images, memory=memory).count == 60
    assert Reference.of(GRAPH, images).count == 200
    assert Reference.of(GRAPH, images, memory=1).count == 16  # fewer say nothing


def test_refit_says_how_many_inputs_have_room():
    inputs, genome = torch.randn(40, 3, 16, 16), GRAPH.full_genome()
    genome[list(GRAPH.groups[-1].genes)[1:]] = False
    room = SHOWN.memory(30, THOROUGH) / 1e9
    with pytest.warns(UserWarning, match=r"refitted on 30 of 40 inputs: more have no room in .* GB"):
        refit(GRAPH, GRAPH.repair(genome), inputs, memory=room)


@pytest.mark.parametrize("memory", [0.0, -1.0, math.inf, math.nan])
def test_refit_refuses_memory_that_is_none(memory: float):
    with pytest.raises(InputError, match="memory must be above 0"):
        refit(GRAPH, GRAPH.full_genome(), torch.randn(20, 3, 16, 16), memory=memory)
