"""Images that are read when needed: the same as those in memory, whoever reads them, and few at once."""

import os
import random
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from deeppruning.backends import PoolBackend
from deeppruning.config import TrainConfig
from deeppruning.data.batches import Augment, Batches
from deeppruning.data.convert import as_images
from deeppruning.data.folders import PictureForm, load_folder
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.sample import balanced_sample, hold_out
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import ImageStream, Pass
from deeppruning.errors import DataError, InputError, RunError
from deeppruning.training.evaluate import evaluate
from deeppruning.training.loop import fit

SIDE = 32


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Sixty pictures of noise, some wide, some high, in two classes."""
    folder = tmp_path_factory.mktemp("photos")
    noise = np.random.default_rng(0)
    for number in range(60):
        place = folder / ("cat" if number % 2 else "dog") / "deep"
        place.mkdir(parents=True, exist_ok=True)
        width, height = ((SIDE, SIDE), (50, SIDE), (SIDE, 44))[number % 3]
        pixels = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number:03}.{'png' if number % 5 else 'jpg'}")
    return folder


def streamed(folder: Path, readers: int = 0, **form) -> DataSplits:
    return load_folder(folder, PictureForm((SIDE, SIDE), readers=readers, held=0, **form))


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(256, 2))
    return nn.Sequential(*layers)


def weights_after(data, test=None, **options) -> tuple[torch.Tensor, list[float | None]]:
    model = network()
    config = TrainConfig(epochs=2, batch_size=16, crop=2, flip=True, cutout=4, lr=0.01)
    reports = fit(model, data, config, test=test, **options)
    return nn.utils.parameters_to_vector(model.parameters()), [report.test_error for report in reports]


def test_training_is_that_of_images_in_memory_to_the_bit_however_many_read(photos):
    held = load_folder(photos, PictureForm((SIDE, SIDE)))
    assert isinstance(held.train, ImageSet)
    expected, errors = weights_after(held.train, held.test)
    for readers in (0, 2):
        splits = streamed(photos, readers)
        assert (
            isinstance(splits.train, ImageStream) and splits.train.normalization == held.train.normalization
        )
        assert torch.equal(splits.train.in_memory().images, held.train.images)
        found, found_errors = weights_after(splits.train, splits.test)
        assert torch.equal(found, expected) and found_errors == errors


def test_a_training_goes_on_from_its_checkpoint_and_not_with_other_pictures(photos, tmp_path):
    data = streamed(photos, resize=40).train
    whole, _ = weights_after(data)
    file = tmp_path / "checkpoint"
    weights_after(data, checkpoint=file, stop_after=1)
    assert torch.equal(weights_after(data, checkpoint=file)[0], whole)
    with pytest.raises(RunError, match="data"):
        weights_after(data.subset(torch.arange(len(data)).flip(0)), checkpoint=file)


def test_random_crops_come_from_the_picture_by_seed_and_number_alone(photos):
    def epoch(readers: int, seed: int, crop: int = 2) -> torch.Tensor:
        data = streamed(photos, readers, resize=40).train
        generator = torch.Generator().manual_seed(seed)
        batches = Batches(data, 10, shuffle=False, augment=Augment(crop=crop), generator=generator)
        return torch.cat([images for images, _ in batches])

    first = epoch(0, 1)
    assert torch.equal(first, epoch(2, 1)) and not torch.equal(first, epoch(0, 2))
    middle = epoch(0, 1, crop=0)
    assert torch.equal(middle, epoch(0, 2, crop=0)) and not torch.equal(middle, first)
    assert not (first == 0).all(dim=1).any()  # no border of zeros


def test_pictures_keep_their_proportions_and_lose_what_sticks_out(tmp_path):
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200  # the middle third of a wide picture is all that is left of it
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    assert load_folder(tmp_path, PictureForm((10, 10))).train.images.unique().tolist() == [200]
    assert load_folder(tmp_path, PictureForm((10, 30))).train.images.unique().tolist() == [0, 200]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"resize": 40}, "give image_size"),
        ({"size": (32, 48), "resize": 31}, "at least the shorter side of image_size, 32, got 31"),
        ({"readers": -1}, "got -1"),
    ],
)
def test_forms_that_make_no_sense_are_refused(form, message):
    with pytest.raises(InputError, match=message):
        PictureForm(**form)


def test_memory_is_that_of_a_few_batches(photos):
    data = streamed(photos).train
    many = data.subset(torch.arange(len(data)).repeat(12))
    whole = len(many) * data.image_bytes
    tracemalloc.start()
    evaluate(network(), many, batch_size=16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert whole > 1_500_000 and peak < whole / 5


@pytest.mark.parametrize("readers", [0, 1])
def test_a_file_that_breaks_later_is_named(photos, tmp_path, readers):
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    data = load_folder(tmp_path, PictureForm(readers=readers, held=0)).train
    (tmp_path / "b" / "2.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"^\S*b/2.png is not a readable picture"):
        data.in_memory()


class Drawn(Dataset):
    """Items with noise from all three random generators; counts how many were asked for."""

    def __init__(self, count: int = 40) -> None:
        self.count = count
        self.read = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        self.read += 1
        noise = torch.rand(3, 8, 8) + random.random() + np.random.random()
        return noise + index, index % 2


class Kept(Drawn):
    """The same with a list of its labels."""

    def __init__(self, count: int = 40, shift: int = 0) -> None:
        super().__init__(count)
        self.targets = [(index + shift) % 2 for index in range(count)]
        self.classes = ["even", "odd"]


def test_what_a_dataset_draws_follows_from_seed_and_number_and_disturbs_nobody():
    torch.manual_seed(5)
    before = torch.get_rng_state()

    def epoch(readers: int, seed: int) -> torch.Tensor:
        data = as_images(DataLoader(Drawn(), num_workers=readers))
        generator = torch.Generator().manual_seed(seed)
        return torch.cat([images for images, _ in Batches(data, 16, shuffle=True, generator=generator)])

    first = epoch(0, 1)
    assert torch.equal(first, epoch(2, 1))
    assert not torch.equal(first.sort(0).values, epoch(0, 2).sort(0).values)
    assert torch.equal(torch.get_rng_state(), before)


def test_labels_are_taken_from_the_list_where_items_agree_with_it():
    known, other, none = Kept(1000), Kept(1000, shift=1), Drawn(400)
    assert as_images(known).labels.tolist() == known.targets and known.read < 40
    assert as_images(other).labels.tolist() == known.targets and other.read > 1000
    assert as_images(none).classes == ("0", "1") and none.read == 401
    part = as_images(Subset(Kept(), [1, 3, 4]))
    assert part.labels.tolist() == [1, 1, 0] and part.classes == ("even", "odd")
    both = as_images(ConcatDataset([Kept(4), Kept(2)]))
    assert both.labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_sample_reads_only_itself_and_is_spread_over_the_classes():
    source = Kept(1000)
    data = as_images(source)
    source.read = 0
    sample = balanced_sample(data, 50, seed=0)
    assert isinstance(sample, ImageSet) and sample.labels.bincount().tolist() == [25, 25]
    assert source.read == 50
    rest, aside = hold_out(data, 0.1, seed=0)
    assert (len(rest), len(aside), source.read) == (900, 100, 50)


def test_tensors_stay_in_memory_and_loaders_tell_their_data():
    images, labels = torch.zeros(6, 1, 4, 4), torch.tensor([0, 1] * 3)
    found = as_images(DataLoader(TensorDataset(images, labels), batch_size=2, shuffle=True))
    assert isinstance(found, ImageSet) and found.images.data_ptr() == images.data_ptr()
    stream = as_images(DataLoader(Kept(), num_workers=2))
    assert isinstance(stream, ImageStream) and stream.readers == 2 and as_images(stream) is stream
    doubled = DataLoader(Kept(), collate_fn=lambda items: (torch.full((1, 3, 8, 8), 2.0), [items[0][1]]))
    assert as_images(doubled).in_memory().images.unique().tolist() == [2.0]


def test_images_of_a_dataset_are_resized_and_bytes_measured():
    items = [(torch.full((3, 8, 8), 51 * (index % 2), dtype=torch.uint8), index % 2) for index in range(6)]
    data = as_images(items)
    assert data.measure() == Normalization((0.1,) * 3, (0.1,) * 3)
    small = DataSplits("items", data, data).resized(4, 5).train
    assert small.image_shape == (3, 4, 5) and small.in_memory().images.unique().tolist() == [0, 51]


class Endless(IterableDataset):
    """Has no length and no numbers."""

    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Endless(), "Endless gives its items in its own order only"),
        (DataLoader(Endless()), "Endless gives its items in its own order only"),
        (DataLoader(Kept(), sampler=WeightedRandomSampler([1.0] * 40, 40)), "WeightedRandomSampler"),
        ([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 2), 0)], r"item 1 .* \(1, 3, 2\).* item 0"),
        ([(torch.zeros(1, 2, 2), 0.5)], r"item 0 .* whole class index, got 0.5"),
        ([torch.zeros(3)], r"item 0 .* pair"),
        ([], "no items"),
        (3, "cannot take images from int"),
    ],
)
def test_data_that_cannot_be_streamed_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        as_images(given)


def test_errors_of_a_dataset_are_told_with_the_item():
    data = as_images(Kept())
    data.source.dataset.count = 0
    data.source.dataset.__class__ = Broken
    with pytest.raises(DataError, match=r"item 0 of the Dataset .*KeyError: 'gone'"):
        data.in_memory()


class Broken(Kept):
    """Fails at every item."""

    def __getitem__(self, index: int):
        raise KeyError("gone")


LEFT_OPEN = []  # passes that a process was killed in the middle of


def begin(data: ImageStream, batches: int) -> tuple[float, list[int]]:
    """The sum of all images, and the readers of a pass that goes on."""
    LEFT_OPEN.append(data.batches([torch.arange(4)] * batches, Pass()))
    next(LEFT_OPEN[-1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return float(sum(images.sum() for images, _ in Batches(data, 16))), [int(child) for child in children]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_of_a_pool_have_readers_and_take_them_along_when_they_are_killed(photos):
    data = streamed(photos, readers=2).train
    with PoolBackend(workers=1).open(begin, data) as session:
        outcome = next(iter(session.map([("one", 5000)])))
        assert outcome.failure is None
        total, readers = outcome.value
        assert len(readers) == 2
    assert total == float(sum(images.sum() for images, _ in Batches(data.in_memory(), 16)))
    end = time.monotonic() + 10
    while (left := [one for one in readers if alive(one)]) and time.monotonic() < end:
        time.sleep(0.02)
    assert left == []


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
