"""Images lie in memory as a network's code takes them: code that flattens by `view` works everywhere."""

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.data.images import ImageSet
from deeppruning.system.memory_format import laid_out, memory_format_for
from deeppruning.training.evaluate import evaluate, outputs_on, recalibrate
from deeppruning.training.loop import fit


class LeNet(nn.Module):
    """As countless tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(12), nn.Linear(12 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.second(torch.relu(self.first(x)))))
        return self.head(nn.functional.max_pool2d(x, 2).view(-1, 12 * 4 * 4))


torch.manual_seed(0)
IMAGES = ImageSet(
    torch.randint(0, 256, (120, 3, 8, 8), dtype=torch.uint8), torch.arange(120) % 10, tuple("abcdefghij")
)
FLOATS = IMAGES.images / 255


def test_the_format_is_the_faster_one_that_runs():
    assert memory_format_for(LeNet().eval(), (FLOATS[:2],)) == torch.contiguous_format
    assert memory_format_for(nn.Conv2d(3, 4, 3), (FLOATS[:2],)) == torch.channels_last
    moved = laid_out(
        {"image": torch.zeros(2, 3, 4, 4), "size": 4, "ids": torch.zeros(2, 3, 4, 4).long()},
        torch.channels_last,
    )
    assert [moved["image"].stride(), moved["ids"].stride(), moved["size"]] == [
        (48, 1, 12, 3),
        (48, 16, 4, 1),
        4,
    ]


def test_a_network_that_flattens_by_view_is_tested_and_recalibrated():
    model = LeNet()
    with pytest.raises(RuntimeError, match="view size"):
        model.eval()(laid_out(FLOATS, torch.channels_last))
    with torch.no_grad():
        expected = model(FLOATS)
    assert torch.allclose(outputs_on(model, IMAGES), expected, atol=1e-5)
    assert evaluate(model, IMAGES).error == int((expected.argmax(1) != IMAGES.labels).sum()) / 120
    recalibrate(model, IMAGES)
    assert int(model.norm.num_batches_tracked) == 1


def test_a_network_that_flattens_by_view_is_trained_pruned_and_searched(tmp_path):
    model = LeNet()
    fit(model, IMAGES, dp.TrainConfig(epochs=1, lr=0.01, crop=0))
    result = dp.prune(
        model, IMAGES, IMAGES, run_dir=tmp_path / "run", workers=1, report=False,
        search=dp.SearchConfig(offspring=2, generations=1, round_to=1),
        finetune=dp.FinetuneConfig(epochs=1),
    )  # fmt: skip
    assert result.knee.flops < result.original.flops
    front = dp.search(
        model, FLOATS, search=dp.SearchConfig(offspring=2, generations=1, round_to=1), workers=1
    )
    thin = front.best(flops=0.9)
    assert thin.model(FLOATS[:3]).shape == (3, 10)
