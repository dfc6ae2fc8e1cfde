"""Span: what each filter adds to those chosen before it, against brute force and on real networks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.importance.criteria import unexplained_variance
from deeppruning.searching.importance.elimination import eliminate, gather_readers
from search_helpers import EXAMPLE, digits, tiny_net


def by_brute_force(rows: np.ndarray) -> np.ndarray:
    """The squared distance of each column from the span of those chosen before, the farthest next."""
    scores, chosen = np.zeros(rows.shape[1]), []
    while len(chosen) < rows.shape[1]:
        distance = np.full(rows.shape[1], -1.0)
        for column in set(range(rows.shape[1])) - set(chosen):
            basis = rows[:, chosen]
            rest = rows[:, column]
            if chosen:
                rest = rest - basis @ np.linalg.lstsq(basis, rest, rcond=None)[0]
            distance[column] = rest @ rest
        best = int(np.argmax(distance))
        scores[best] = distance[best]
        chosen.append(best)
    return scores


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(0, 2**32))
def test_unexplained_variance_is_the_distance_from_the_span_of_those_before(count, seed):
    rows = np.random.default_rng(seed).normal(size=(12, count)) * np.arange(1, count + 1)
    assert unexplained_variance(rows.T @ rows) == pytest.approx(by_brute_force(rows), rel=1e-8)


def test_a_sum_of_others_explains_nothing_and_neither_does_nothing():
    a, b = np.eye(4)[:2]
    rows = np.stack([3 * a, 2 * b, a + b, 0 * a], axis=1)
    assert unexplained_variance(rows.T @ rows) == pytest.approx([9.0, 4.0, 0.0, 0.0])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 2**32))
def test_an_elimination_loses_what_the_columns_left_cannot_express(count, outputs, seed):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(12, count)) * np.arange(1, count + 1), rng.normal(size=(count, outputs))
    order, wanted = rng.permutation(count), rows @ weights
    losses = [0.0]
    for gone in range(1, count + 1):
        basis = rows[:, order[gone:]]
        losses.append(float(((wanted - basis @ np.linalg.lstsq(basis, wanted, rcond=None)[0]) ** 2).sum()))
    lost = eliminate([(torch.tensor(rows.T @ rows), torch.tensor(weights @ weights.T))], order)
    assert lost.losses == pytest.approx(losses, rel=1e-6, abs=1e-8)
    assert lost.widths.tolist() == list(range(count, -1, -1))
    assert lost.loss(count) == 0.0 and lost.loss(count - 0.5) == pytest.approx(losses[1] / 2, abs=1e-8)


def test_two_readers_add_their_losses_and_steps_take_several():
    first, second = (torch.diag(torch.tensor(values)) for values in ([4.0, 1.0, 2.0], [1.0, 1.0, 9.0]))
    readers = [(first, torch.eye(3)), (second, 2 * torch.eye(3))]
    at_once = eliminate(readers, np.array([1, 0, 2]), steps=1)
    assert at_once.widths.tolist() == [3, 0] and at_once.losses[-1] == pytest.approx(29.0)
    assert eliminate(readers, np.array([1, 0, 2])).losses.tolist() == pytest.approx([0, 3, 9, 29])


def test_a_stand_in_expresses_channels_by_others():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.Conv2d(3, 2, 1))
    with torch.no_grad():
        model[0].weight[2] = 2 * model[0].weight[0]
    graph = ChannelGraph(model, EXAMPLE)
    images = torch.randn(64, 1, 8, 8)
    readers = gather_readers(graph, model, as_call(images))
    genome = np.array([True, True, False])
    stand_in = readers["1"].stand_in([0, 1, 2], genome)
    assert stand_in is not None and (stand_in.kept.tolist(), stand_in.gone.tolist()) == ([0, 1], [2])
    seen = model[0](images)
    (made,) = stand_in(model[1], (seen,))
    assert torch.equal(made[:, :2], seen[:, :2])
    assert (made - seen)[:, 2].std() < 0.05 * seen[:, 2].std()
    assert readers["1"].stand_in([0, 1, 2], np.ones(3, dtype=bool)) is None


class Chain(nn.Module):
    """Three layers without a norm, so that copies of filters answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 5, 3, padding=1)
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.relu(self.second(torch.relu(self.first(x)))).mean((2, 3)))
        return out


def evidence_of(model: nn.Module, **options) -> Evidence:
    train, _ = digits()
    return Evidence(ChannelGraph(model, EXAMPLE, **options), model, train)


def scores_by_layer(evidence: Evidence) -> dict[str, np.ndarray]:
    scores = np.asarray(CRITERIA["span"].scores(evidence))
    return {layer: scores[genes] for layer, genes in evidence.graph.layer_genes().items() if min(genes) >= 0}


def test_a_copy_of_a_filter_is_worth_nothing():
    torch.manual_seed(0)
    model = Chain()
    with torch.no_grad():
        model.first.weight[4] = 2 * model.first.weight[1]
        model.first.bias[4] = 2 * model.first.bias[1]
        model.second.weight[:, 4] = model.second.weight[:, 1]
    first = scores_by_layer(evidence_of(model))["first"]
    less, more = sorted((first[1], first[4]))
    assert less == first.min() and less < 0.1 * np.delete(first, [1, 4]).min() and more > 10 * less


def test_on_a_residual_network_every_filter_has_a_score_of_its_own():
    evidence = evidence_of(tiny_net(), depth=True)
    scores = np.asarray(CRITERIA["span"].scores(evidence))
    assert scores.shape == (14,) and np.isfinite(scores).all() and (scores > 0).all()
    assert np.array_equal(scores, CRITERIA["span"].scores(evidence))
    inner = scores[evidence.graph.layer_genes()["inner"]]
    assert len(set(inner)) == 8


def test_it_looks_at_inputs_in_the_place_of_images_alike():
    model = tiny_net()
    with_images = evidence_of(model)
    (images,), _ = with_images.call(10_000)
    with_inputs = Evidence(ChannelGraph(model, EXAMPLE), model, inputs=images)
    assert np.array_equal(CRITERIA["span"].scores(with_images), CRITERIA["span"].scores(with_inputs))
    with pytest.raises(InputError, match="give images or inputs"):
        CRITERIA["span"].scores(Evidence(ChannelGraph(model, EXAMPLE), model))


class Grouped(nn.Module):
    """The first layer is read in groups, hence by no weights that mix its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.linear = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.relu(self.grouped(torch.relu(self.first(x)))).mean((2, 3)))
        return out


def test_filters_that_nobody_reads_by_weights_of_his_own_go_by_their_norm():
    torch.manual_seed(0)
    evidence = evidence_of(Grouped())
    graph = evidence.graph
    span, l1 = (np.asarray(CRITERIA[name].scores(evidence)) for name in ("span", "l1"))
    first, read = (sorted(set(graph.layer_genes()[name])) for name in ("first", "grouped"))
    assert not set(first) & set(read)
    assert np.argsort(span[first]).tolist() == np.argsort(l1[first]).tolist()
    assert span[first].min() > 0 and span[first].max() < span[read].min()
