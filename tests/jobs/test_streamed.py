"""Runs on data that is read as it is needed: the results of data in memory, and the same checks."""

from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import deeppruning as dp
from cli_calls import call
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError, RunError
from search_helpers import digits, outcome, quick_finetune, quick_guided, tiny_net


class Items(Dataset):
    """Images of a set, one by one, as a user's Dataset gives them."""

    def __init__(self, data: ImageSet) -> None:
        self.data = data
        self.targets = data.labels.tolist()
        self.classes = list(data.classes)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        return self.data.images[index], self.targets[index]


def options(run_dir) -> dict:
    search = quick_guided(sample=128, generations=1)
    return {
        "run_dir": run_dir,
        "search": search,
        "finetune": quick_finetune(epochs=1),
        "workers": 1,
        "report": False,
    }


def test_a_run_on_a_dataset_is_that_on_its_tensors_and_knows_its_data(tmp_path):
    train, test = (replace(part, normalization=None) for part in digits())
    dp.prune(tiny_net(), train, test, **options(tmp_path / "held"))
    dp.prune(tiny_net(), Items(train), DataLoader(Items(test)), **options(tmp_path / "read"))
    held, read = outcome(tmp_path / "held"), outcome(tmp_path / "read")
    for name in ("files", "candidates", "picks", "epochs"):
        assert held[name] == read[name]
    # One image more, which the sample does not hold, is other data all the same.
    more = train.subset(torch.cat([torch.arange(len(train)), torch.tensor([0])]))
    with pytest.raises(RunError, match="other training data"):
        dp.resume(tmp_path / "read", tiny_net(), Items(more), Items(test))


@pytest.fixture
def photos(tmp_path):
    for number in range(24):
        place = tmp_path / "photos" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 18), (10 * number, 99, 0)).save(place / f"{number}.png")
    return tmp_path / "photos"


def test_the_command_line_crops_from_larger_pictures_and_keeps_to_it(photos, tmp_path):
    given = ["resnet20", "--data", photos, "--epochs", 1, "--threads", 1, "--out", tmp_path / "base"]
    sizes = ["--image-size", 16, "--image-resize", 18, "--loading-workers", 1]
    assert "test error" in call("train", *given, *sizes).output
    with pytest.raises(RunError, match="image_resize was 18 and is 17"):
        call("train", *given, *sizes, "--image-resize", 17)
    with pytest.raises(InputError, match=r"image_resize .* 'digits'"):
        call("evaluate", "resnet20", "--data", "digits", *sizes)
