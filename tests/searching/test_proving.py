"""What is handed out is proven: a candidate whose cut is wrong is refused, and the next best is taken."""

import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.display.outcome import choice_notes
from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.roles import SELECTED
from deeppruning.runs import RunFolder, facts
from deeppruning.searching.events import CandidateRefused, GenerationDone
from deeppruning.searching.proving import Proofs
from search_helpers import digits, quick_finetune, quick_guided, quick_search

REASON = "its cut does not equal the masked network: mul in forward differs (relative difference"


class Fickle(nn.Module):
    """Doubles its features where its two layers have the widths that are `odd`.

    It learns the widths from memory, which no trace of operations sees.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 3, padding=1)
        self.second = nn.Conv2d(12, 14, 3, padding=1)
        self.head = nn.Linear(14, 10)
        self.odd: set[tuple[int, int]] = set()

    def forward(self, x: Tensor) -> Tensor:
        biases = [layer.bias for layer in (self.first, self.second)]
        first, second = (bias.untyped_storage().nbytes() // bias.element_size() for bias in biases)
        x = torch.relu(self.second(torch.relu(self.first(x))))
        out: Tensor = self.head((x * (2.0 if (first, second) in self.odd else 1.0)).mean((2, 3)))
        return out


def fickle() -> Fickle:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Fickle().eval()


def widths(graph: dp.ChannelGraph, candidate: Any) -> tuple[int, int]:
    found = graph.widths(candidate.genome)
    return found["first"][0], found["second"][0]


@pytest.fixture(scope="module")
def front():
    inputs = torch.randn(80, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    options = dp.SearchConfig(offspring=6, generations=3, low=0.1, high=0.9, bins=6, round_to=1)
    return dp.search(fickle(), inputs, search=options, workers=1)


def test_the_front_hands_out_the_next_best(front) -> None:
    graph = front.meter.context.graph
    within = [one for one in front.candidates if one.flops <= 0.5 * front.original.flops]
    best = sorted(within, key=lambda one: (one.evaluated.judged, one.evaluated.cost, one.id))
    wrong = widths(graph, best[0])
    graph._model.odd = {wrong}
    found = front.at(flops=0.5)
    graph._model.odd = set()
    assert found.id == next(one.id for one in best if widths(graph, one) != wrong)
    assert front.meter.proofs.refused[best[0].id].startswith(REASON)
    assert front.at(flops=0.5).id == found.id  # what was refused stays so


def test_no_network_is_handed_out_where_none_is_proven(front) -> None:
    graph = front.meter.context.graph
    graph._model.odd = {(first, second) for first in range(1, 13) for second in range(1, 14)}
    proofs = Proofs(replace(front.meter.context, _cache={}))  # nothing is proven yet
    fresh = replace(front, meter=replace(front.meter, proofs=proofs))
    with pytest.raises(RunError, match=r"refused.* mul in forward"):
        fresh.at(flops=0.3)
    graph._model.odd = set()


@pytest.mark.parametrize(
    "search",
    [quick_guided(round_to=1), pytest.param(quick_search(generations=2), marks=pytest.mark.slow)],
    ids=["guided", "paper"],
)
def test_a_run_refuses_the_knee_and_goes_on_to_the_same(search: dp.SearchConfig, tmp_path) -> None:
    network, (train, test) = fickle(), digits(train=60, test=30)
    graph = dp.ChannelGraph(network, torch.zeros(1, 1, 8, 8))
    events: list[Any] = []

    def watch(event: Any) -> None:
        events.append(event)
        if isinstance(event, GenerationDone) and event.generation == event.generations:
            network.odd = {widths(graph, event.picks["knee"])}

    options = {
        "search": search,
        "finetune": quick_finetune(epochs=0),
        "workers": 1,
        "run_dir": tmp_path / "run",
    }
    result = dp.prune(network, train, test, observer=watch, target="flops=90%", **options)
    last = [event for event in events if isinstance(event, GenerationDone)][-1].picks
    refused = {event.id: event.reason for event in events if isinstance(event, CandidateRefused)}
    assert last["knee"].id in refused and all(why.startswith(REASON) for why in refused.values())
    assert all(widths(graph, one) not in network.odd for one in result.solutions)
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        kept = run.history.facts()
        assert kept[facts.REFUSED.key] == {str(id_): why for id_, why in refused.items()}
        assert run.history.picks()[search.generations] == {role: result.picks[role].id for role in SELECTED}
    line = f"candidate {last['knee'].id} was refused, and the next best taken: {REASON}"
    assert any(note.startswith(line) for note in choice_notes(kept))
    assert any(note.startswith(line) for note in collect(tmp_path / "run")["refused"])
    with pytest.raises(RunError, match=f"candidate {last['knee'].id} .*mul in forward differs"):
        dp.finetune(tmp_path / "run", network, train, test, candidate=last["knee"].id)
    shutil.rmtree(tmp_path / "run" / "finetune")
    resumed = dp.resume(tmp_path / "run", fickle(), train, test)  # a network that would be proven by now
    assert {one.role: one.id for one in resumed.solutions} == {one.role: one.id for one in result.solutions}
    assert resumed.best(flops=0.9).id not in refused


def test_where_even_the_whole_network_proves_nothing_none_is_refused() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3), nn.Threshold(torch.inf, torch.nan))
    graph = dp.ChannelGraph(network, torch.zeros(1, 1, 8, 8))
    assert not graph.verify([1, 0, 0, 1]).holds
    assert graph.fault([1, 0, 0, 1]) == ""
