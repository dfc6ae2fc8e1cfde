"""Activations of a thin network are compared with its original's, at the channels that stay."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.config import FinetuneConfig, TrainConfig
from deeppruning.graph.calls import as_call
from deeppruning.training.distillation import Loss, distillation_loss, scale_of_scores
from deeppruning.training.imitation import Imitation, imitation_loss
from deeppruning.training.inside import Inside
from deeppruning.training.loop import teach


class Scales(nn.Module):
    """Two sizes of activations, then scores."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.each = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.third, self.head = nn.Conv2d(8, 6, 1), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(torch.relu(self.third(torch.relu(self.each(x)))).mean((2, 3)))


torch.manual_seed(0)
ORIGINAL = Scales().eval()
IMAGES = torch.randn(32, 3, 8, 8)
GRAPH = dp.ChannelGraph(ORIGINAL, IMAGES[:1], round_to=1)


def cut(weight: float = 0.5) -> tuple[nn.Module, Inside]:
    """Without the first two filters of the first layer and the last three of the third."""
    genome = GRAPH.full_genome()
    for group in GRAPH.groups:
        gone = {"first": group.genes[:2], "third": group.genes[3:]}.get(group.layers[0], ())
        genome[list(gone)] = False
    thin = GRAPH.prune(genome)
    return thin, Inside.of(thin, ORIGINAL, GRAPH.recipe(genome), as_call(IMAGES[:2]), weight)


def test_places_are_the_inputs_of_the_last_layers_of_the_last_two_sizes():
    _, inside = cut()
    assert {place.layer: (place.axis, place.kept.tolist()) for place in inside.places} == {
        "third": (1, [*range(8)]),
        "head": (-1, [0, 1, 2]),
    }


def test_the_distance_is_that_of_the_channels_that_stay_relative_to_their_squares():
    thin, inside = cut()
    with inside.watch(thin, ORIGINAL) as seen, torch.no_grad():
        thin(IMAGES), ORIGINAL(IMAGES)
        read = {}
        for name, network in (("thin", thin), ("original", ORIGINAL)):
            hook = network.head.register_forward_pre_hook(lambda _, x, name=name: read.update({name: x[0]}))
            network(IMAGES)
            hook.remove()
    due = read["original"][:, :3]
    expected = (read["thin"] - due).square().mean() / due.square().mean()
    assert seen._distance_at(inside.places[-1]).item() == pytest.approx(expected.item(), rel=1e-4)
    both = sum(seen._distance_at(place).item() for place in inside.places)
    assert seen.distance().item() == pytest.approx(0.5 * both, rel=1e-5)
    assert not ORIGINAL.head._forward_pre_hooks and not thin.head._forward_pre_hooks
    with inside.watch(ORIGINAL, ORIGINAL) as seen, torch.no_grad():
        ORIGINAL(IMAGES)
    seen.ours.update(
        {
            place.layer: seen.theirs[place.layer].index_select(place.axis, place.kept)
            for place in inside.places
        }
    )
    assert seen.distance().item() == 0.0


class Dropping(nn.Module):
    """In training a layer is skipped, and another one reads half of the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.skipped = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.stride, self.head = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stride(torch.relu(self.first(x))))
        x = x[:, :, ::2] if self.training else self.skipped(x)
        return self.head(x.mean((2, 3)))


def test_what_training_skips_or_reads_otherwise_is_not_compared():
    original = Dropping().eval()
    graph = dp.ChannelGraph(original, IMAGES[:1], round_to=1)
    genome = graph.full_genome()
    genome[list(graph.groups[0].genes[:2])] = False
    thin = graph.prune(genome)
    inside = Inside.of(thin, original, graph.recipe(genome), as_call(IMAGES[:2]), 1.0)
    assert [place.layer for place in inside.places] == ["skipped", "head"]
    with torch.no_grad(), inside.watch(thin.train(), original) as seen:
        thin(IMAGES), original(IMAGES)
    assert seen._distance_at(inside.places[0]) is None
    assert seen.distance().item() == pytest.approx(seen._distance_at(inside.places[1]).item())
    seen.ours["head"] = seen.ours["head"][:5]
    assert seen.distance().item() == 0.0


def test_a_place_counts_in_proportion_to_the_outputs():
    thin, inside = cut()
    labels = torch.zeros(len(IMAGES), dtype=torch.int64)
    loss = Loss(teacher=ORIGINAL, distill=1.0, temperature=16.0, inside=inside)
    with torch.no_grad(), loss.watch(thin) as seen:
        outputs = thin(IMAGES)
        both = loss(IMAGES, outputs, labels, seen)
        scores = ORIGINAL(IMAGES)
    alone = distillation_loss(outputs, scores, 16.0)
    assert (both - alone).item() == pytest.approx(
        (scale_of_scores(scores) * seen.distance()).item(), rel=1e-5
    )
    lesson = Imitation(IMAGES, ORIGINAL, TrainConfig(batch_size=32), torch.device("cpu"), 16.0, inside)
    with torch.no_grad():
        taught = lesson.taught(thin, as_call(IMAGES)).loss
    assert taught.item() == pytest.approx(
        (imitation_loss(outputs, scores, 16.0) + both - alone).item(), rel=1e-4
    )


def test_training_brings_activations_nearer_than_outputs_alone_do():
    distances = []
    for compared in (False, True):
        thin, inside = cut(20.0)
        options = FinetuneConfig(epochs=20, batch_size=8, lr=0.01, precision="float32")
        lesson = Imitation(IMAGES, ORIGINAL, options, torch.device("cpu"), 16.0, inside if compared else None)
        teach(thin, lesson, options)
        with torch.no_grad(), inside.watch(thin, ORIGINAL) as seen:
            thin(IMAGES), ORIGINAL(IMAGES)
        distances.append(seen.distance().item())
    assert distances[1] < 0.8 * distances[0]


def test_recorded_options_without_features_compare_outputs_alone():
    table = FinetuneConfig().to_table()
    assert table.pop("features") == 1.0 and FinetuneConfig.paper().features == 0.0
    assert FinetuneConfig.from_table(table) == replace(FinetuneConfig(), features=0.0)
