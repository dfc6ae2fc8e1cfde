"""Training: schedules and losses by hand, resumed equals uninterrupted, divergence, odd sizes."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.errors import InputError, RunError
from deeppruning.training.checkpoint import read_history
from deeppruning.training.distillation import Loss, distillation_loss
from deeppruning.training.loop import BatchReport, Diverged, derived_seed, fit, rate

pytestmark = pytest.mark.usefixtures("one_thread")


def small_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8, 3),
    )  # fmt: skip


def images(count: int = 50, size: int = 8, *, floating: bool = False) -> ImageSet:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 1, size, size), generator=generator, dtype=torch.uint8)
    labels = torch.arange(count) % 3
    pixels[labels == 1] //= 2
    pixels[labels == 2] //= 4
    if floating:
        return ImageSet(pixels.float() / 255, labels, ("a", "b", "c"))
    return ImageSet(pixels, labels, ("a", "b", "c"), Normalization((0.3,), (0.25,)))


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    other = second.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in first.state_dict().items())


CONFIG = TrainConfig(epochs=4, lr=0.05, batch_size=16, crop=1, cutout=2, label_smoothing=0.1, seed=3)


class Stop(Exception):
    pass


def stop_after(epoch: int):
    def on_epoch(report):
        if report.epoch == epoch:
            raise Stop

    return on_epoch


def test_schedules_by_hand():
    assert [rate("constant", 0.1, step, 8) for step in (0, 7)] == [0.1, 0.1]
    assert [rate("cosine", 1.0, step, 4) for step in (0, 1, 2)] == pytest.approx(
        [1.0, 0.5 * (1 + math.sqrt(0.5)), 0.5]
    )
    # A quarter of 8 steps rises from a twentieth: 0.05, 0.525, then the peak, then half a cosine over 6.
    assert [rate("onecycle", 1.0, step, 8) for step in (0, 1, 2, 5, 7)] == pytest.approx(
        [0.05, 0.525, 1.0, 0.5, 0.5 * (1 + math.cos(math.pi * 5 / 6))]
    )
    with pytest.raises(InputError, match="did you mean cosine"):
        rate("cosin", 1.0, 0, 1)


def test_rate_is_set_at_every_step():
    seen: list[BatchReport] = []
    history = fit(
        small_net(), images(50), TrainConfig(epochs=2, lr=0.2, batch_size=25, crop=0), on_batch=seen.append
    )
    assert [report.lr for report in seen] == pytest.approx(
        [rate("cosine", 0.2, step, 4) for step in range(4)]
    )
    assert [(report.epoch, report.batch, report.batches) for report in seen] == [
        (1, 1, 2), (1, 2, 2), (2, 1, 2), (2, 2, 2),
    ]  # fmt: skip
    assert history[1].train_loss == seen[3].train_loss


def test_distillation_loss_by_hand():
    student, teacher = torch.tensor([[0.0, 0.0]]), torch.tensor([[2 * math.log(3.0), 0.0]])
    # At temperature 2 the teacher says 3/4, 1/4 and the student 1/2, 1/2.
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert distillation_loss(student, teacher, 2.0).item() == pytest.approx(4 * divergence, rel=1e-6)
    labels = torch.tensor([0])
    loss = Loss(teacher=nn.Linear(2, 2), distill=0.25, temperature=2.0)
    with torch.no_grad():
        loss.teacher.weight.copy_(torch.diag(torch.tensor([2 * math.log(3.0), 0.0])))  # type: ignore[union-attr]
        loss.teacher.bias.zero_()  # type: ignore[union-attr]
    mixed = loss(torch.tensor([[1.0, 0.0]]), student, labels)
    assert mixed.item() == pytest.approx(0.75 * math.log(2) + 0.25 * 4 * divergence, rel=1e-6)


def test_distillation_needs_a_teacher_and_changes_the_result():
    with pytest.raises(InputError, match="no teacher"):
        fit(small_net(), images(), CONFIG, distill=0.5)
    alone, taught, teacher = small_net(), small_net(), small_net(5)
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    fit(alone, images(), CONFIG)
    fit(taught, images(), CONFIG, teacher=teacher.train(), distill=0.5)
    assert not same_weights(alone, taught)
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    assert teacher.training


def test_one_step_equals_plain_sgd():
    model, reference = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), nn.Linear(64, 3)
    reference.load_state_dict(model[1].state_dict())
    velocity = torch.zeros_like(reference.weight), torch.zeros_like(reference.bias)
    data = images(10, floating=True)
    config = TrainConfig(
        epochs=2, lr=0.1, batch_size=10, crop=0, flip=False, schedule="constant", weight_decay=0.01
    )
    fit(model, data, config)
    for _ in range(2):
        loss = F.cross_entropy(reference(data.images.flatten(1)), data.labels)
        weights = reference.weight, reference.bias
        with torch.no_grad():
            for weight, grad, moment in zip(
                weights, torch.autograd.grad(loss, weights), velocity, strict=True
            ):
                decayed = grad + 0.01 * weight
                moment.mul_(0.9).add_(decayed)
                weight -= 0.1 * (decayed + 0.9 * moment)  # Nesterov's momentum
    assert torch.allclose(model[1].weight, reference.weight, atol=1e-6)


def test_channels_last_weights_train_as_contiguous_ones():
    plain, strided = small_net(), small_net().to(memory_format=torch.channels_last)
    fit(plain, images(), CONFIG)
    fit(strided, images(), CONFIG)
    for name, tensor in plain.state_dict().items():
        assert torch.allclose(tensor.float(), strided.state_dict()[name].float(), atol=1e-4), name


def test_training_is_repeatable_and_leaves_random_state_alone():
    first, second = small_net(), small_net()
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    fit(first, images(), CONFIG)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(7)
    fit(second, images(), CONFIG)
    assert same_weights(first, second)
    other = small_net()
    fit(other, images(), TrainConfig.from_table({**CONFIG.to_table(), "seed": 4}))
    assert not same_weights(first, other)
    assert derived_seed(0, 1, "batches") != derived_seed(0, 1, "layers") != derived_seed(1, 0, "layers")


@pytest.mark.parametrize("stopped_after", [1, 3])
@pytest.mark.parametrize("schedule", ["cosine", "onecycle"])
def test_resumed_equals_uninterrupted(tmp_path: Path, stopped_after: int, schedule: str):
    config = TrainConfig.from_table({**CONFIG.to_table(), "schedule": schedule})
    whole, stopped = small_net(), small_net()
    whole_history = fit(whole, images(), config, test=images(30))
    with pytest.raises(Stop):
        fit(stopped, images(), config, test=images(30), checkpoint=tmp_path / "c.safetensors",
            on_epoch=stop_after(stopped_after))  # fmt: skip
    resumed = small_net(seed=17)
    history = fit(resumed, images(), config, test=images(30), checkpoint=tmp_path / "c.safetensors")
    assert same_weights(whole, resumed)
    assert [r.train_loss for r in history] == [r.train_loss for r in whole_history]
    assert [r.test_error for r in history] == [r.test_error for r in whole_history]
    assert read_history(tmp_path / "c.safetensors") == history


def test_finished_training_is_not_repeated(tmp_path: Path):
    first, second = small_net(), small_net(2)
    fit(first, images(), CONFIG, checkpoint=tmp_path / "c.safetensors")
    fit(second, images(), CONFIG, checkpoint=tmp_path / "c.safetensors", on_epoch=stop_after(1))
    assert same_weights(first, second)


def test_checkpoint_of_other_options_or_network_is_refused(tmp_path: Path):
    path = tmp_path / "c.safetensors"
    fit(small_net(), images(), CONFIG, checkpoint=path)
    with pytest.raises(RunError, match=r"lr was 0\.05 and is 0\.2"):
        fit(small_net(), images(), TrainConfig.from_table({**CONFIG.to_table(), "lr": 0.2}), checkpoint=path)
    with pytest.raises(RunError, match=r"train_images was 50 and is 20"):
        fit(small_net(), images(20), CONFIG, checkpoint=path)
    with pytest.raises(RunError, match="another network"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), images(), CONFIG, checkpoint=path)


def test_divergence_is_raised():
    config = TrainConfig(epochs=5, lr=1e30, batch_size=10, crop=0, schedule="constant")
    with pytest.raises(Diverged, match="lower the learning rate"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), images(40), config)


@pytest.mark.parametrize(("count", "batch_size"), [(5, 64), (33, 16), (7, 7)])
def test_batches_larger_than_data_and_lone_images(count: int, batch_size: int):
    history = fit(
        small_net(), images(count), TrainConfig(epochs=1, lr=0.01, batch_size=batch_size, crop=1, cutout=3)
    )
    assert len(history) == 1 and 0.0 <= history[0].train_error <= 1.0


def test_a_lone_last_image_is_left_out_and_only_that():
    def batches(count: int, batch_size: int) -> list[int]:
        seen: list[BatchReport] = []
        options = TrainConfig(epochs=1, lr=0.0, batch_size=batch_size, crop=0)
        fit(small_net(), images(count), options, on_batch=seen.append)
        return [report.batches for report in seen]

    assert batches(33, 16) == [2, 2]
    assert batches(34, 16) == [3, 3, 3]
    assert batches(17, 32) == [1]
    assert batches(3, 1) == [3, 3, 3]  # a user who asks for batches of one gets them


def test_random_layers_draw_anew_each_epoch_and_alike_each_time():
    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.drawn = nn.Linear(64, 3), []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.drawn.append(float(torch.rand(())))
            return self.linear(x.flatten(1))

    def drawn(seed: int) -> list[float]:
        model = Draws()
        fit(model, images(20), TrainConfig(epochs=3, lr=0.1, batch_size=20, crop=0, seed=seed))
        return model.drawn

    first = drawn(0)
    assert len(set(first)) == 3
    assert drawn(0) == first
    assert not set(drawn(1)) & set(first)


@pytest.mark.parametrize(("size", "floating"), [(8, True), (13, False), (20, True)])
def test_learns_at_any_size_and_type(size: int, floating: bool):
    model = small_net()
    config = TrainConfig(epochs=12, lr=0.1, batch_size=10, crop=0)
    history = fit(
        model, images(60, size, floating=floating), config, test=images(60, size, floating=floating)
    )
    # Brightness tells the classes apart; guessing would give two thirds.
    assert history[-1].test_error is not None and history[-1].test_error < 0.4


def test_layers_skipped_in_the_first_step_train_later():
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.extra, self.calls = nn.Linear(64, 3), nn.Linear(3, 3), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            out = self.base(x.flatten(1))
            return out if self.calls == 1 else self.extra(out)

    model = Skipping()
    before = model.extra.weight.detach().clone()
    fit(model, images(20), TrainConfig(epochs=1, lr=0.1, batch_size=10, crop=0))
    assert model.calls == 2 and not torch.equal(before, model.extra.weight)


def test_bad_arguments():
    with pytest.raises(InputError, match="no parameters"):
        fit(nn.Flatten(), images(), CONFIG)
    with pytest.raises(InputError, match="num_classes=3"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), images(), CONFIG)
