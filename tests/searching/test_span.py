"""Span: what each filter adds to those chosen before it, against brute force and on real networks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.importance.criteria import unexplained_variance
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
def test_left_to_tell_is_the_distance_from_the_span_of_those_before(count, seed):
    rows = np.random.default_rng(seed).normal(size=(12, count)) * np.arange(1, count + 1)
    assert unexplained_variance(rows.T @ rows) == pytest.approx(by_brute_force(rows), rel=1e-8)


def test_a_sum_of_others_has_nothing_to_tell_and_neither_has_nothing():
    a, b = np.eye(4)[:2]
    rows = np.stack([3 * a, 2 * b, a + b, 0 * a], axis=1)
    assert unexplained_variance(rows.T @ rows) == pytest.approx([9.0, 4.0, 0.0, 0.0])


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
    assert first[1] == pytest.approx(0.0, abs=1e-9 * first[4]) and first[4] > 0
    assert (np.delete(first, 1) > 1e-6 * first.max()).all()


def test_scores_are_those_of_the_covariance_that_the_reader_sees():
    torch.manual_seed(0)
    model = Chain()
    evidence = evidence_of(model)
    (images,), _ = evidence.call(256)
    with torch.no_grad():
        seen = torch.relu(model.second(torch.relu(model.first(images)))).mean((2, 3)).double().numpy()
    centred = (seen - seen.mean(0)) * model.linear.weight.detach().double().norm(dim=0).numpy()
    expected = unexplained_variance(centred.T @ centred / len(centred))
    assert scores_by_layer(evidence)["second"] == pytest.approx(expected, rel=1e-5)


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
