"""Batches and augmentation: shapes, order, determinism and what each transformation may change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.data.batches import Augment, Batches, normalize
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.sample import balanced_sample
from deeppruning.errors import DataError, InputError


def make(count: int, classes: int = 3, channels: int = 3, size: int = 6) -> ImageSet:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(1, 256, (count, channels, size, size + 1), dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(count) % classes, tuple(str(one) for one in range(classes)))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_normalize_scales_then_subtracts_then_divides():
    images = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    result = normalize(images, Normalization((0.5, 0.5, 0.1), (0.25, 0.5, 0.1)))
    assert result.dtype == torch.float32 and result.flatten().tolist() == pytest.approx([-2.0, 1.0, 1.0])
    assert normalize(images, None).flatten().tolist() == pytest.approx([0.0, 1.0, 0.2])


def test_normalize_passes_float_images_through():
    images = torch.randn(2, 3, 4, 4)
    assert normalize(images, Normalization((0.5,), (0.5,))) is images


def test_measured_normalization_equals_the_float_computation():
    data = make(50)
    scaled = data.images.double() / 255
    measured = data.measure()
    assert measured is not None
    assert measured.mean == pytest.approx(scaled.mean((0, 2, 3)).tolist(), abs=5e-5)
    assert measured.std == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist(), abs=5e-5)


@settings(max_examples=25, deadline=None)
@given(
    crop=st.integers(0, 8),
    flip=st.booleans(),
    cutout=st.integers(0, 9),
    is_float=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_augment_keeps_shape_type_and_input_and_repeats(crop, flip, cutout, is_float, seed):
    batch = make(5).images
    batch = batch.float() if is_float else batch
    before = batch.clone()
    augment = Augment(crop, flip, cutout)
    first, second = augment(batch, seeded(seed)), augment(batch, seeded(seed))
    assert (first.shape, first.dtype) == (batch.shape, batch.dtype)
    assert torch.equal(first, second)
    assert torch.equal(batch, before)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_flip_is_an_involution_and_mirrors_whole_images(seed):
    batch, augment = make(8).images, Augment(flip=True)
    once = augment(batch, seeded(seed))
    assert torch.equal(augment(once, seeded(seed)), batch)
    for image, result in zip(batch, once, strict=True):
        assert torch.equal(result, image) or torch.equal(result, image.flip(-1))


@settings(max_examples=20, deadline=None)
@given(crop=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_crop_is_a_window_of_the_zero_padded_image(crop, seed):
    batch = make(4).images
    padded = torch.nn.functional.pad(batch, (crop,) * 4)
    height, width = batch.shape[2:]
    for index, result in enumerate(Augment(crop=crop)(batch, seeded(seed))):
        windows = padded[index].unfold(1, height, 1).unfold(2, width, 1)
        assert (windows == result[:, None, None]).all(-1).all(-1).all(0).sum() == 1


def test_crop_reaches_every_offset_and_flip_is_even():
    batch = make(1).images.expand(2000, -1, -1, -1)
    assert len(torch.unique(Augment(crop=1)(batch, seeded()).flatten(1), dim=0)) == 9
    flipped = (Augment(flip=True)(batch, seeded()) != batch).flatten(1).any(1).float().mean()
    assert 0.45 < float(flipped) < 0.55


def test_cutout_blanks_one_square_inside_the_image():
    batch = torch.ones(200, 1, 9, 9)
    blank = (Augment(cutout=3)(batch, seeded()) == 0).squeeze(1)
    sizes = blank.flatten(1).sum(1)
    assert int(sizes.max()) == 9 and int(sizes.min()) == 4
    rows, columns = blank.any(2).sum(1), blank.any(1).sum(1)
    assert torch.equal(rows * columns, sizes)


def test_batches_cover_all_in_order_without_shuffle():
    data = make(10)
    parts = list(Batches(data, 4))
    assert [len(images) for images, _ in parts] == [4, 4, 2] and len(Batches(data, 4)) == 3
    assert torch.equal(torch.cat([labels for _, labels in parts]), data.labels)
    assert torch.equal(torch.cat([images for images, _ in parts]), normalize(data.images, None))
    assert parts[0][0].is_contiguous(memory_format=torch.channels_last)


def test_shuffled_epochs_are_permutations_that_the_generator_decides():
    data = make(10, classes=10)

    def epochs(seed: int) -> list[list[int]]:
        batches = Batches(data, 3, shuffle=True, augment=Augment(1, True, 2), generator=seeded(seed))
        return [torch.cat([labels for _, labels in batches]).tolist() for _ in range(2)]

    assert epochs(5) == epochs(5)
    first, second = epochs(5)
    assert first != second and sorted(first) == sorted(second) == list(range(10))


def test_drop_last_drops_the_rest_and_refuses_to_drop_all():
    assert [len(labels) for _, labels in Batches(make(10), 4, drop_last=True)] == [4, 4]
    with pytest.raises(DataError, match=r"batches of 11 .* there are 10: .* at most 10"):
        Batches(make(10), 11, drop_last=True)
    assert len(Batches(make(10), 11)) == 1


def test_batches_of_nothing_are_refused():
    with pytest.raises(InputError, match="no images"):
        Batches(make(3).subset(torch.tensor([], dtype=torch.int64)), 2)
    with pytest.raises(InputError, match="got 0"):
        Batches(make(3), 0)


@settings(max_examples=25, deadline=None)
@given(size=st.integers(3, 30), seed=st.integers(0, 2**32))
def test_balanced_sample_differs_by_one_at_most_and_repeats(size, seed):
    data = make(30)
    sample = balanced_sample(data, size, seed)
    counts = sample.labels.bincount(minlength=3)
    assert len(sample) == size and int(counts.max() - counts.min()) <= 1
    assert torch.equal(sample.images, balanced_sample(data, size, seed).images)
    assert len(torch.unique(sample.images.flatten(1), dim=0)) == size


def test_balanced_sample_differs_between_seeds():
    data = make(30)
    assert not torch.equal(balanced_sample(data, 9, 0).images, balanced_sample(data, 9, 1).images)


def test_balanced_sample_names_the_class_that_is_too_small():
    data = make(30).subset(torch.arange(28))  # classes of 10, 9 and 9
    with pytest.raises(InputError, match=r"sample of 30 needs 10 images of class '1', which has 9; .* 27"):
        balanced_sample(data, 30, 0)


@pytest.mark.parametrize(("mean", "std"), [((0.5,), (0.0,)), ((0.5, 0.5), (0.5,)), ((float("nan"),), (1.0,))])
def test_useless_normalisation_is_refused(mean, std):
    with pytest.raises(InputError):
        Normalization(mean, std)
