"""Labels of moved tensors: windows on parameters, the dimension that is cut, counts and repair."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.graph.atoms import AtomTable, components
from deeppruning.graph.payloads import Channels, Constant, Origin, gather
from deeppruning.graph.plan import Tally
from deeppruning.graph.repair import FilterRepair

VIEWS = {
    "transposed": lambda x: x.transpose(0, 1),
    "rows": lambda x: x[2:5],
    "every other row": lambda x: x[1::2],
    "one row": lambda x: x[3],
    "one column kept": lambda x: x[:, 1:2],
    "split": lambda x: x.view(2, 3, 4),
    "merged": lambda x: x.view(24),
    "new axes": lambda x: x[None, :, None].expand(2, 6, 3, 4),
    "diagonal": lambda x: x.diagonal(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_window_tells_what_the_positions_of_all_elements_tell(name):
    origin = Origin("weight", (6, 4))
    seen = origin.seen_as(VIEWS[name](origin.ghost()))
    moved = VIEWS[name](origin.flat())
    assert torch.equal(seen.flat(), moved)
    known = Origin("weight", (6, 4), index=moved.contiguous())
    for dimension in range(moved.ndim):
        found, due = seen.own_dimension(dimension), known.own_dimension(dimension)
        if name in ("merged", "diagonal"):
            assert found is None  # two dimensions run along it: frozen, to be on the safe side
        elif moved.shape[dimension] > 1 and due is not None:
            assert found is not None and found[0] == due[0]
            assert found[1].tolist() == due[1].tolist()
        else:
            assert found is None or moved.shape[dimension] == 1


def test_a_view_back_to_the_whole_parameter_is_the_parameter():
    origin = Origin("weight", (6, 4))
    twice = origin.seen_as(origin.ghost().t())
    assert not twice.unmoved
    assert twice.seen_as(twice.ghost().t()).unmoved


def test_the_dimension_that_leaves_most_channels_free_is_cut():
    table = AtomTable()
    atoms = torch.arange(1, 13, dtype=torch.float64)
    table.size = 13
    payload = gather(atoms.view(1, 2, 6, 1).expand(4, 2, 6, 20), table, ("view",), "")
    assert isinstance(payload, Channels) and payload.dimension == 2
    assert len(np.unique(table.classes()[1:])) == 6
    assert table.candidates[("view",)] == 2
    other = AtomTable(choices={("view",): 1}, size=13)
    payload = gather(atoms.view(1, 2, 6, 1).expand(4, 2, 6, 20), other, ("view",), "")
    assert isinstance(payload, Channels) and payload.dimension == 1
    assert gather(torch.zeros(2, 3), AtomTable(), ("zeros",), "") == Constant()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40))
def test_components_are_those_of_the_graph(size, edges):
    edges = [(a % size, b % size) for a, b in edges]
    due = list(range(size))
    for _ in range(size):
        for a, b in edges:
            due[a] = due[b] = min(due[a], due[b])
    first, second = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    assert components(size, first, second).tolist() == due


STRIPS = st.lists(st.lists(st.integers(-1, 11), min_size=1, max_size=8), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(STRIPS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_tally_counts_what_stays(strips, bits):
    arrays = [np.array(strip, dtype=np.int64) for strip in strips]
    found = Tally(12, arrays)(np.array([bits]))
    assert found.tolist() == [[sum(gene < 0 or bits[gene] for gene in strip) for strip in strips]]


@settings(deadline=None, max_examples=60)
@given(STRIPS, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 4), st.integers(1, 4))
def test_repair_keeps_every_limit_and_only_adds(strips, bits, least, multiple):
    arrays = [np.array(strip, dtype=np.int64) for strip in strips]
    repair = FilterRepair(
        num_genes=12, layers=arrays, pieces=arrays[:2], min_channels=least, round_to=multiple
    )
    genome = np.array([bits])
    repaired = repair(genome)
    assert (repaired >= genome).all()
    assert (repair(repaired) == repaired).all()
    for strip in arrays:
        kept = int(sum(gene < 0 or repaired[0, gene] for gene in strip))
        free = (strip >= 0).any()
        assert not free or kept == len(strip) or (kept >= min(least, len(strip)) and kept % multiple == 0)
