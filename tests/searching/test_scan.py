"""The scan before a guided search: any workers find the same, and one that is stopped goes on."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from deeppruning.backends import InProcessBackend, PoolBackend
from deeppruning.display.lines import scanned_line
from deeppruning.display.state import SearchState
from deeppruning.errors import RunError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.prepare import prepare
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import LayersScanned, ignore
from deeppruning.searching.guide import (
    Guide,
    find_orders,
    gather_evidence,
    load_or_make_guide,
    scanned_guide,
)
from deeppruning.searching.importance import Evidence
from deeppruning.searching.loop import work
from deeppruning.searching.scan import ScanCut, losses_by_workers, scan, scan_loss
from search_helpers import EXAMPLE, digits, quick_guided, tiny_net

CUTS = 4  # six filters at two widths; eight, which are kept in fours, at one, and gone


@pytest.fixture(scope="module")
def context() -> Context:
    train, test = digits()
    return prepare(tiny_net(), train, test, search=quick_guided(), measure=False).context


def guide_here(context: Context) -> Guide:
    evidence = gather_evidence(context)
    return scanned_guide(
        evidence, find_orders(evidence), lambda cuts: [scan_loss(context, cut) for cut in cuts]
    )


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(InProcessBackend(), id="here"),
        # test_guided_search.py has workers scan within a whole run.
        pytest.param(PoolBackend(workers=2), id="two workers", marks=pytest.mark.slow),
    ],
)
def test_workers_find_what_this_process_finds(context, backend, tmp_path):
    history, heard = History(tmp_path / "history.sqlite"), []
    with backend, backend.open(work, context, kind=type) as session:
        look = partial(losses_by_workers, session, history, heard.append)
        evidence = gather_evidence(context)
        found = scanned_guide(evidence, find_orders(evidence), look)
    assert found.losses == guide_here(context).losses
    assert heard == [LayersScanned(done, CUTS) for done in range(1, CUTS + 1)]


def test_a_scan_that_was_stopped_goes_on_with_the_orders_it_had(context, tmp_path):
    history, asked = History(tmp_path / "history.sqlite"), []

    def counted(context, item):
        asked.append(item)
        if len(asked) == 3:
            raise OSError("the machine goes down")
        return work(context, item)

    def known():
        session = InProcessBackend().open(counted, context, kind=type)
        look = partial(losses_by_workers, session, history, ignore)
        return load_or_make_guide(context, history, look, 1)

    with pytest.raises(RunError, match=r"(?s)a scan of the network's layers failed.*the machine goes down"):
        known()
    kept = history.get_fact(facts.GUIDE)
    assert kept["losses"] is None and kept["scores"]["span"]
    history.set_fact(facts.GUIDE, {**kept, "scores": {**kept["scores"], "l1": [1.0] * 14}})  # no longer found
    guide = known()
    assert guide.losses == guide_here(context).losses
    assert guide.scores["l1"].tolist() == [1.0] * 14
    assert len(asked) == 3 + CUTS - 2  # two were known
    assert known().losses == guide.losses and len(asked) == 3 + CUTS - 2


def test_a_loss_without_measure_is_kept(context, tmp_path):
    history = History(tmp_path / "history.sqlite")
    history.set_fact(facts.SCAN, {"of": 2, "losses": {"0": None}})
    full = ScanCut(context.graph.full_genome())
    session = InProcessBackend().open(work, context, kind=type)
    other = History(tmp_path / "other.sqlite")
    other.set_fact(facts.SCAN, {"of": 9, "losses": {"0": None}})  # of a version with other cuts
    assert losses_by_workers(session, other, ignore, [full]) == [scan_loss(context, full)]
    assert losses_by_workers(session, history, ignore, [full, full]) == [math.inf, scan_loss(context, full)]


def test_widths_that_are_looked_at_are_those_that_a_group_may_have():
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 12, 3),
        nn.Conv2d(12, 40, 3),
        nn.Conv2d(40, 64, 1),
        nn.Conv2d(64, 64, 1, groups=16),
    ]
    graph = ChannelGraph(nn.Sequential(*layers, nn.Conv2d(64, 2, 1)), EXAMPLE, round_to=None)
    looked = []

    def look(cuts):
        looked.extend(cut.genome for cut in cuts)
        return [0.5] * len(cuts)

    scores = np.arange(float(graph.num_genes))
    scan(Evidence(graph, graph.prune(graph.full_genome()), inputs=torch.randn(8, 1, 8, 8)), scores, look)
    kept = {layer: [] for layer in "012"}
    for genome in looked:
        for group in graph.groups:
            if group.prunable and not genome[list(group.genes)].all():
                genes = np.array(group.genes)
                count = int(genome[genes].sum())
                kept[group.layers[0]].append(count)
                assert genome[genes[-count:]].all()  # by their rank, none brought back for its place
    assert kept == {"0": [8], "1": [32, 16], "2": [12, 8]}  # the last of four filters each
    multiples = {group.layers[0]: group.multiple for group in graph.groups if group.prunable}
    assert multiples == {"0": 4, "1": 8, "2": 2}


def test_progress_tells_of_quarters():
    lines = [scanned_line(LayersScanned(done, 10)) for done in range(1, 11)]
    assert [place for place, line in enumerate(lines, 1) if line] == [3, 5, 8, 10]
    assert lines[4] == "scanning layers: 5 of 10 cuts"
    state = SearchState()
    state.update(LayersScanned(3, 10))
    assert state.headline() == ("scanning layers  3/10", 3, 10)
