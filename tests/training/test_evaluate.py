"""Evaluation and recalibration against values computed by hand, and the choice of devices."""

import math

import pytest
import torch
from torch import nn

from deeppruning.data.images import ImageSet, Normalization
from deeppruning.errors import InputError
from deeppruning.system.device import available_threads, choose_device
from deeppruning.training.evaluate import evaluate, recalibrate


class Brightest(nn.Module):
    """The scores of an image are its first row of pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, 0, :]


def test_error_and_loss_by_hand():
    pixels = torch.zeros(5, 1, 2, 2)
    pixels[:, 0, 0] = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0], [0, 1]])
    data = ImageSet(pixels, torch.tensor([0, 1, 1, 1, 0]), ("a", "b"))
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    for batch_size in (2, 5, 100):
        result = evaluate(Brightest(), data, batch_size=batch_size)
        assert (result.error, result.count) == (0.6, 5)
        assert result.loss == pytest.approx((2 * right + 3 * wrong) / 5, rel=1e-6)


def test_modes_are_restored_module_by_module():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(4, 2))
    model[1].eval()
    data = ImageSet(torch.rand(6, 1, 2, 2), torch.zeros(6, dtype=torch.int64), ("a", "b"))
    first = evaluate(model, data)
    assert [module.training for module in model] == [True, False, True]
    assert evaluate(model, data).loss == first.loss


def test_outputs_must_fit_the_classes():
    data = ImageSet(torch.rand(4, 1, 2, 2), torch.zeros(4, dtype=torch.int64), tuple("abc"))
    with pytest.raises(InputError, match="2 outputs but the data has 3 classes"):
        evaluate(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), data)
    with pytest.raises(InputError, match=r"got \(4, 1, 2, 2\)"):
        evaluate(nn.Identity(), data)


def test_recalibrate_gives_the_true_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 1, bias=False), nn.BatchNorm2d(3, momentum=0.1), nn.Dropout(0.5))
    images = torch.randint(0, 256, (40, 2, 6, 6), dtype=torch.uint8)
    data = ImageSet(images, torch.zeros(40, dtype=torch.int64), ("a",), Normalization((0.5, 0.4), (0.2, 0.3)))
    weight = model[0].weight.detach().clone()
    model.eval()
    recalibrate(model, data, batch_size=10)
    mean, std = torch.tensor([0.5, 0.4]).view(2, 1, 1), torch.tensor([0.2, 0.3]).view(2, 1, 1)
    features = nn.functional.conv2d((images / 255 - mean) / std, weight).detach()
    batches = features.view(4, 10, 3, 6, 6)
    assert torch.allclose(model[1].running_mean, features.mean((0, 2, 3)), atol=1e-5)
    # Batch norm averages the unbiased variances of the batches.
    assert torch.allclose(model[1].running_var, batches.var((1, 3, 4)).mean(0), rtol=1e-4)
    assert model[1].momentum == 0.1 and int(model[1].num_batches_tracked) == 4
    assert not any(module.training for module in model.modules())
    assert torch.equal(model[0].weight, weight)
    recalibrate(model, data, batch_size=40)
    assert torch.allclose(model[1].running_var, features.var((0, 2, 3)), rtol=1e-4)


def test_recalibrate_drops_a_lone_last_image_and_leaves_others_alone():
    data = ImageSet(torch.rand(9, 1, 1, 1), torch.zeros(9, dtype=torch.int64), ("a",))
    model = nn.Sequential(nn.BatchNorm2d(1))
    recalibrate(model, data, batch_size=4)
    assert torch.allclose(model[0].running_mean, data.images[:8].mean().view(1))
    plain = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(1, 1)).train()
    before = [tensor.clone() for tensor in plain.state_dict().values()]
    recalibrate(plain, data, batch_size=4)
    assert all(torch.equal(a, b) for a, b in zip(before, plain.state_dict().values(), strict=True))
    assert plain.training


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    assert available_threads() >= 1
    with pytest.raises(InputError, match="unknown device 'gpu0'"):
        choose_device("gpu0")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match=r"'cuda' cannot be used.*--device cpu"):
            choose_device("cuda")
