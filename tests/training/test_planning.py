"""Epochs that fit into a time, and a learning rate found by trial."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deeppruning.config import FinetuneConfig, TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import Diverged, InputError
from deeppruning.training import planning
from deeppruning.training.distillation import Loss
from deeppruning.training.labelled import Labelled
from deeppruning.training.loop import fit, rate
from deeppruning.training.planning import FEWEST_STEPS, best_rate, epochs_within, plan_training, trial_steps

DATA = ImageSet(
    torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2, ("a", "b")
)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def lesson(config: TrainConfig) -> Labelled:
    return Labelled(DATA, config, Loss(), torch.device("cpu"))


@given(st.floats(0.01, 1e5), st.floats(1e-4, 10), st.integers(1, 1000))
def test_the_steps_take_no_longer_than_the_time(seconds: float, step: float, batches: int):
    steps = round(epochs_within(seconds, step, batches) * batches)
    assert steps * step <= seconds * (1 + 1e-9)
    assert steps == 0 or steps >= FEWEST_STEPS
    assert steps or seconds / step < FEWEST_STEPS + 1


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_trials_take_a_tenth_at_most(steps: int, rates: int):
    assert rates * trial_steps(steps, rates) <= 0.1 * steps


def test_a_rate_that_diverges_is_not_chosen():
    def trial(lr: float) -> float:
        if lr > 0.5:
            raise Diverged("inf")
        return 1 - lr

    assert best_rate([0.1, 0.3, 0.9], trial) == (0.3, {"0.1": 0.9, "0.3": 0.7})
    assert best_rate([0.1, 0.3], lambda lr: -1e-8 * lr)[0] == 0.3  # a divergence that rounds below zero


def test_part_of_an_epoch():
    config = TrainConfig(epochs=1.5, lr=0.1, batch_size=8, crop=0)
    seen: list[tuple[int, int, int]] = []
    fit(network(), DATA, config, on_batch=lambda r: seen.append((r.epoch, r.batch, r.batches)))
    assert seen == [(1, n, 8) for n in range(1, 9)] + [(2, n, 4) for n in range(1, 5)]


@given(st.floats(0.001, 30), st.integers(1, 500))
def test_every_epoch_has_a_step_and_only_the_last_is_a_part(epochs: float, batches: int):
    config = TrainConfig(epochs=epochs)
    last = config.steps(batches) - (config.rounds - 1) * batches
    assert 1 <= last <= batches
    assert abs(config.steps(batches) - epochs * batches) <= 1


def test_a_part_of_an_epoch_that_is_less_than_a_step_is_one():
    reports = fit(network(), DATA, TrainConfig(epochs=1.01, lr=0.1, batch_size=8, crop=0))
    assert [report.epoch for report in reports] == [1, 2]


def test_bursts_of_batches_that_are_read_ahead_do_not_hide_the_wait():
    clock = [0.0]

    def step() -> None:
        waited = steps[0] % 4 == 0  # four batches arrive together
        steps[0] += 1
        clock[0] += 0.4 if waited else 0.001

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.time, "perf_counter", lambda: clock[0])
        steps = [0]
        assert planning.time_of_step(step) == pytest.approx(0.001)
        steps = [0]
        assert planning.time_of_step(step, ahead=13) == pytest.approx(0.1, rel=0.15)


@given(st.floats(1, 1e5), st.floats(1e-3, 1), st.integers(1, 1000), st.floats(0, 100))
def test_the_steps_and_the_tests_take_no_longer_than_the_time(
    seconds: float, step: float, batches: int, test: float
):
    epochs = epochs_within(seconds, step, batches, test)
    training = epochs * batches * step
    with_tests = training + math.ceil(epochs) * test
    around = 1 + 1e-6
    # Where hardly anything is left beside one test, the test comes on top.
    alone = seconds < around * (test + (FEWEST_STEPS + 1) * step) or batches < FEWEST_STEPS
    assert with_tests <= seconds * around or (alone and training <= seconds * around)
    assert epochs > 0 or seconds < around * (FEWEST_STEPS + 1) * step or batches < FEWEST_STEPS
    assert alone or epochs_within(1.1 * seconds, step, batches, test) >= epochs / around


def test_a_norm_that_averages_over_all_batches_follows_a_training():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16, momentum=None)
    norm.num_batches_tracked.fill_(10**6)
    model = nn.Sequential(nn.Flatten(), norm, nn.Linear(16, 2))
    fit(model, replace(DATA, images=DATA.images + 3.0), TrainConfig(epochs=10, lr=0.01, batch_size=8, crop=0))
    assert norm.momentum is None
    assert (norm.running_mean - 3.0).abs().max() < 0.5


def test_steps_of_a_slice_are_those_of_the_same_numbers_side_by_side():
    weights = []
    for dense in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        sliced = model[0].weight.detach()[:, :1]
        model[0].weight = nn.Parameter(sliced.contiguous() if dense else sliced)
        fit(model, DATA, TrainConfig(epochs=3, lr=0.1, batch_size=8, crop=0, flip=False))
        weights.append(model[0].weight.detach())
    assert torch.allclose(*weights, atol=1e-6)


@given(st.integers(1, 500))
def test_a_linear_rate_rises_for_a_tenth_and_ends_near_zero(steps: int):
    rates = [rate("linear", 1.0, step, steps) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == 1.0
    assert top <= math.ceil(0.1 * steps)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] > 0


def test_a_time_becomes_epochs_and_the_network_stays():
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    config = FinetuneConfig(minutes=5, batch_size=8, crop=0, flip=False)
    plan = plan_training(model, lesson(config), config, torch.device("cpu"))
    assert plan.epochs > 0
    assert plan.step_seconds is not None
    assert plan.epochs * 8 * plan.step_seconds <= 300
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_same_rate_is_found_again():
    # The number format is given: which one is faster for so small a network is a matter of chance.
    config = FinetuneConfig(epochs=100, batch_size=8, crop=0, flip=False, precision="float32")
    plans = [plan_training(network(), lesson(config), config, torch.device("cpu")) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].losses is not None
    assert str(plans[0].lr) in {
        name for name, loss in plans[0].losses.items() if loss == min(plans[0].losses.values())
    }


def test_a_rate_that_is_given_is_kept():
    config = FinetuneConfig(epochs=100, lr=0.123, batch_size=8, crop=0, flip=False)
    plan = plan_training(network(), lesson(config), config, torch.device("cpu"))
    assert (plan.lr, plan.losses, plan.epochs) == (0.123, None, 100)


def test_epochs_and_minutes_exclude_each_other():
    with pytest.raises(InputError, match=r"epochs \(3\) and minutes \(5\)"):
        FinetuneConfig(epochs=3, minutes=5)
    assert FinetuneConfig(epochs=3).changed_by({"minutes": 5.0}) == FinetuneConfig(minutes=5)
    assert FinetuneConfig(minutes=3).changed_by({"epochs": 5}) == FinetuneConfig(epochs=5)
    with pytest.raises(InputError, match="minutes"):
        FinetuneConfig().changed_by({"minutes": 5.0, "epochs": 1})
