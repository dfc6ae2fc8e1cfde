"""Parts that run in turns: every one waits for the others, and a failure of one ends all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.refitting import Reference, memory, probing, reference, refit_with
from deeppruning.refitting.memory import CANDIDATES
from deeppruning.refitting.turns import Turns


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_place_is_settled_once_after_all_have_come_and_before_any_goes_on(count):
    turns, events = Turns(count), []

    def work(part: int) -> int:
        for place in ("a", "b"):
            events.append(("comes", place, turns.current))
            turns.meet(place, lambda place=place: events.append(("settled", place, count)))
        assert turns.current == part
        return 10 * part

    assert turns.run(work) == [10 * part for part in range(count)]
    for place in ("a", "b"):
        coming = [number for number, event in enumerate(events) if event[:2] == ("comes", place)]
        settled = [number for number, event in enumerate(events) if event[:2] == ("settled", place)]
        assert len(coming) == count and len(settled) == 1 and max(coming) < settled[0]
    assert sorted(part for kind, place, part in events if (kind, place) == ("comes", "b")) == list(
        range(count)
    )


def test_a_failure_of_one_part_or_of_a_solution_is_raised_and_ends_the_others():
    for failing in ("work", "settle"):
        turns = Turns(3)

        def settle(failing=failing) -> None:
            if failing == "settle":
                raise ValueError("no solution")

        def work(part: int, turns=turns, settle=settle, failing=failing) -> None:
            if part == 1 and failing == "work":
                raise ValueError("no solution")
            turns.meet("layer", settle)

        with pytest.raises(ValueError, match="no solution"):
            turns.run(work)


def test_parts_that_take_different_ways_are_refused():
    turns = Turns(2)
    with pytest.raises(InputError, match="different ways for different inputs"):
        turns.run(lambda part: turns.meet(f"layer {part}", lambda: None))
    turns = Turns(2)
    with pytest.raises(InputError, match="different ways"):
        turns.run(lambda part: turns.meet("layer", lambda: None) if part == 0 else None)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(8, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 1))
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(self.norm(x + self.branch(x)).mean((2, 3)))


def look_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """At all places of each input, so that all see the same however they are divided; parts of any size."""
    monkeypatch.setattr(probing, "FEWEST_AT_ONCE", 1)
    monkeypatch.setattr(reference, "CANDIDATES", replace(CANDIDATES, fewest_places=144))
    monkeypatch.setattr(memory, "MOST_PLACES", 144)


@pytest.fixture
def cut() -> tuple[ChannelGraph, np.ndarray, torch.Tensor]:
    torch.manual_seed(0)
    graph = ChannelGraph(Residual().eval(), torch.randn(1, 3, 12, 12))
    genome = graph.full_genome()
    genome[[1, graph.num_genes - 2]] = False
    return graph, graph.repair(genome), torch.randn(61, 3, 12, 12)


def test_many_parts_give_what_one_gives(cut, monkeypatch):
    graph, genome, images = cut
    whole = Reference.of(graph, images)
    assert len(whole.parts) == 1
    monkeypatch.setattr(probing, "PART", 8 * 12 * 12 * 4 * 9)  # bytes: nine inputs
    look_everywhere(monkeypatch)
    several = Reference.of(graph, images)
    assert [rows.stop - rows.start for rows in several.rows] == [8, 9, 9, 8, 9, 9, 9]
    monkeypatch.setattr(probing, "PART", 2**30)
    whole = Reference.of(graph, images)
    for name, (mean, variance) in whole.norms.items():
        assert torch.allclose(several.norms[name][0], mean, atol=1e-5)
        assert torch.allclose(several.norms[name][1], variance, rtol=1e-4)
    one, other = (refit_with(each, graph, genome, ridge=0.1).model for each in (whole, several))
    with torch.no_grad():
        assert torch.allclose(one(images), other(images), atol=1e-3)
    assert several.gap(other) == pytest.approx(whole.gap(one), rel=1e-2)


class Windows(nn.Module):
    """Cuts each image into nine windows, that stand in the first dimension, and joins them again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.wide, self.narrow = nn.Linear(8, 12), nn.Linear(12, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x)).unflatten(3, (3, 4)).unflatten(2, (3, 4))
        windows = x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, 8)
        windows = self.narrow(torch.relu(self.wide(windows)))
        return self.head(windows.reshape(-1, 144, 8).amax(1))


def test_layers_that_see_windows_of_the_inputs_are_refitted_in_parts_as_in_one(monkeypatch):
    torch.manual_seed(0)
    images = torch.randn(61, 3, 12, 12)
    graph = ChannelGraph(Windows().eval(), images[:1], prune_linear=True)
    genome = graph.full_genome()
    genome[[1, 2, graph.num_genes - 3]] = False
    look_everywhere(monkeypatch)
    whole = Reference.of(graph, images)
    assert whole.layers["wide"].answers.shape == (9 * 61, 16, 12)
    monkeypatch.setattr(probing, "PART", 8 * 12 * 12 * 4 * 20)  # bytes: about twenty inputs
    several = Reference.of(graph, images)
    assert len(several.rows) == 5
    assert several.layers["wide"].parts == [slice(9 * some.start, 9 * some.stop) for some in several.rows]
    for name, mean in whole.means.items():
        assert torch.allclose(several.means[name], mean, atol=1e-5)
    one, other = (refit_with(each, graph, genome, ridge=0.1).model for each in (whole, several))
    with torch.no_grad():
        assert torch.allclose(one(images), other(images), atol=1e-3)


def test_a_layer_whose_first_dimension_is_not_the_inputs_is_left_where_parts_differ(monkeypatch):
    class Columns(Windows):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.relu(self.stem(x)).flatten(2).permute(2, 0, 1)  # (places, inputs, channels)
            return self.head(self.narrow(torch.relu(self.wide(places))).amax(0))

    graph = ChannelGraph(Columns().eval(), torch.randn(1, 3, 12, 12), prune_linear=True)
    monkeypatch.setattr(probing, "PART", 8 * 12 * 12 * 4 * 20)
    several = Reference.of(graph, torch.randn(61, 3, 12, 12))
    assert "another form for another number of inputs" in several.left["wide"]
    assert set(several.layers) == {"stem", "head"}


def test_a_network_that_keeps_values_between_calls_runs_as_one_part(monkeypatch):
    class Keeps(Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen = self.stem(x)
            return self.head(self.norm(self.seen + self.branch(self.seen)).mean((2, 3)))

    monkeypatch.setattr(probing, "PART", 1)
    graph = ChannelGraph(Keeps().eval(), torch.randn(1, 3, 12, 12))
    assert len(Reference.of(graph, torch.randn(40, 3, 12, 12)).parts) == 1
