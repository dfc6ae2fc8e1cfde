"""Whatever a network does to divide its channels, every genome that its graph offers is a right cut."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from deeppruning.graph import ChannelGraph
from deeppruning.graph.atoms import positions_of
from deeppruning.graph.proof.trials import Trials, find_move
from deeppruning.graph.trace.tracer import Trace
from graph_checks import every_nth
from graph_networks import NETWORKS, conv
from split_networks import FOLLOWING, SPLITS, between, unlike

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGE = torch.zeros(1, 3, 4, 4)


def graph_of(name: str, width: int) -> ChannelGraph:
    torch.manual_seed(0)
    return ChannelGraph(SPLITS[name](width), IMAGE)


def assert_right(graph: ChannelGraph, genomes: np.ndarray) -> None:
    for genome in genomes:
        proof = graph.verify(genome)
        assert proof.difference <= 1e-8, genome.astype(int).tolist()


def many(graph: ChannelGraph, seed: int, count: int) -> np.ndarray:
    """Genomes of all densities."""
    generator = np.random.default_rng(seed)
    return generator.random((count, graph.num_genes)) < generator.random((count, 1))


@pytest.mark.parametrize("name", every_nth(8, SPLITS))
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(width=st.integers(2, 64), seed=st.integers(0, 1000))
def test_every_genome_of_every_split_is_right(name, width, seed):
    graph = graph_of(name, width)
    assert_right(graph, many(graph, seed, 8))


@pytest.mark.slow
@pytest.mark.parametrize("width", range(2, 65))
@pytest.mark.parametrize("name", SPLITS)
def test_every_genome_of_every_split_is_right_at_every_width(name, width):
    graph = graph_of(name, width)
    assert_right(graph, many(graph, width, 40))


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("chunk_two", (14, 16, 18)),
        ("chunk_into_convolutions", (6, 18, 32)),
        ("sliced_in_half", (2, 8, 9, 16, 17, 30, 48)),
        ("rolled_by_half", (14, 16, 18)),
    ],
)
@pytest.mark.slow
def test_splits_that_two_random_genomes_happen_to_balance(name, widths):
    for width in widths:
        graph = graph_of(name, width)
        assert_right(graph, many(graph, 0, 12))
        first = graph.layer_genes()["stem"]
        half = width // 2
        assert first[:half] == first[half : 2 * half]  # each filter goes with its like in the other half


def test_halves_of_unequal_activations_lose_the_same_positions():
    for half in (7, 8, 9):
        graph = graph_of("chunk_two", 2 * half)
        assert graph.num_genes == half
        kept = graph.prune(np.arange(half) < 3)
        assert kept.stem.out_channels == 6
        assert kept(IMAGE).shape == (1, 3)


@pytest.mark.parametrize("width", [5, 9, 15])
def test_what_a_longer_half_has_more_stays(width):
    graph = graph_of("chunk_two", width)
    assert graph.num_genes == width // 2
    assert graph.layer_genes()["stem"].count(-1) == 1
    bits = np.arange(2**graph.num_genes)[:, None] >> np.arange(graph.num_genes) & 1
    assert_right(graph, bits[:40].astype(bool))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("width", [8, 9])
def test_sizes_that_follow_the_layers_leave_every_filter_free(name, width):
    graph = graph_of(name, width)
    assert graph.num_genes == 3 * width
    assert_right(graph, many(graph, 1, 12))


@pytest.mark.slow
def test_two_networks_in_one_stay_apart():
    """A split that takes its size from another layer that happens to be as wide is found out."""

    def run(net, x):
        left, right = x.split([net.other.out_channels, x.shape[1] - net.other.out_channels], 1)
        return torch.cat([torch.relu(left), torch.tanh(right)], 1) + 0 * net.last(net.other(x))

    for width in (4, 8, 12):
        half = width // 2
        model = between(run, width, other=conv(width, half), last=conv(half, width))
        graph = ChannelGraph(model, IMAGE)
        assert_right(graph, many(graph, 0, 20))


@pytest.mark.slow
def test_a_thin_network_that_splits_by_its_own_width_can_be_pruned_again():
    for width in (8, 20, 32):
        graph = graph_of("split_quarters", width)
        assert graph.num_genes == width // 4
        for seed in range(2):
            genome = many(graph, seed, 1)[0]
            thin = graph.prune(genome)
            again = ChannelGraph(thin, IMAGE)
            assert again.num_genes in (0, thin.stem.out_channels // 4)
            assert_right(again, many(again, seed, 8))


def test_positions_that_are_rounded_hold_at_the_smallest_width_too():
    graph = graph_of("only_the_middle", 13)
    assert_right(graph, np.vstack([np.zeros(graph.num_genes, dtype=bool), many(graph, 13, 20)]))


@pytest.mark.slow
def test_a_ragged_split_by_its_own_width_is_right():
    for width in (5, 9, 13, 14, 19):
        graph = graph_of("split_quarters", width)
        assert_right(graph, many(graph, width, 20))


class Block(nn.Module):
    """Splits by its own width in training only."""

    def forward(self, x):
        return unlike(x.chunk(2, 1)) if self.training else x


def test_a_split_in_training_mode_only_is_found():
    for half in (3, 7, 8, 9):
        model = between(
            lambda net, x: net.read(net.block(x)), 2 * half, 4, block=Block(), read=conv(2 * half, 4)
        )
        graph = ChannelGraph(model, IMAGE)
        for genome in many(graph, 0, 12):
            assert graph.prune(genome).train()(IMAGE).shape == model.train()(IMAGE).shape


@pytest.mark.parametrize("name", [*FOLLOWING, "flipped", "padded_to_the_middle"])
def test_the_genomes_that_are_tried_unbalance_every_move(name):
    graph = graph_of(name, 12)
    built = graph._built
    genes = built.genes
    genomes = list(Trials(built.plan, genes, [Trace(built.records)]).genomes())
    generator = np.random.default_rng(5)
    everything = graph.repair(generator.random((400, graph.num_genes)) < 0.5)
    moves = [move for record in built.records if (move := find_move(record, genes))]
    assert moves or name == "padded_to_the_middle"
    for move in moves:
        # What no genome of many contradicts is all that may be left open.
        assert move.open(genomes) <= move.open(everything)


@pytest.mark.parametrize("name", ["plain_chain", "unet", "cat_dense", "depthwise"])
def test_something_is_removed_at_every_operation(name):
    model, example = NETWORKS[name]()
    built = ChannelGraph(model, example)._built
    genes = built.genes
    genomes = list(Trials(built.plan, genes, [Trace(built.records)]).genomes())
    for record in built.records:
        for atoms in record.atoms():
            free = genes[atoms][genes[atoms] >= 0]
            assert not len(free) or any(not genome[free].all() for genome in genomes)


@pytest.mark.parametrize(
    ("atoms", "wanted", "due"),
    [
        ([4, 5, 6, 7], [[4, 5], [6, 7]], [[0, 1], [2, 3]]),
        ([4, 4, 5, 5], [[4, 4], [5, 5]], [[0, 1], [2, 3]]),
        ([4, 5, 4, 5], [[4, 5], [4, 5]], [[0, 1], [2, 3]]),
        ([4, 4, 4, 4], [[4], [4, 4]], [[0], [1, 2]]),
        ([4, 5, 6], [[6, 9, 4]], [[2, -1, 0]]),
        ([4, 4, 5], [[5, 4, 4, 4]], [[2, 0, 1, 0]]),
        ([4, 5], [[], [9]], [[], [-1]]),
    ],
)
def test_atoms_are_found_where_they_stand(atoms, wanted, due):
    found = positions_of([np.array(ids, dtype=np.int64) for ids in wanted], np.array(atoms))
    assert [positions.tolist() for positions in found] == due


@pytest.mark.parametrize(("width", "genes"), [(32, 4), (48, 6), (24, 3)])
def test_shuffled_units_in_a_row_keep_what_halving_leaves_free(width, genes):
    """Three units, each of which ties half of its channels to the other: the width is halved thrice."""
    half = width // 2

    def run(net, x):
        for body in net.bodies:
            left, right = x.chunk(2, 1)
            x = torch.cat([left, body(right)], 1)
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return x

    model = between(run, width, bodies=nn.ModuleList(conv(half, half) for _ in range(3)))
    graph = ChannelGraph(model, IMAGE)
    assert graph.num_genes == genes
    assert_right(graph, many(graph, 0, 8))
