"""Digits, IDX files, folders of pictures, .npz files and conversion: real values and clear refusals."""

import gzip

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image
from torch.utils.data import Dataset

from data_files import idx_bytes, write_idx, write_picture, write_pictures
from deeppruning.data.convert import as_images
from deeppruning.data.folders import PictureForm, load_folder
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.npz import load_npz
from deeppruning.data.sets.digits import load_digits
from deeppruning.data.sets.mnist import MNIST_CLASSES, load_idx, read_idx
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.errors import DataError, InputError


def test_digits_are_the_real_ones_in_a_fixed_split():
    splits = load_digits()
    assert (len(splits.train), len(splits.test)) == (1437, 360)
    both = splits.train.labels.bincount() + splits.test.labels.bincount()
    assert both.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    # The first digit of the source is a zero whose first row counts 0 0 5 13 9 1 0 0 dots of 16.
    assert splits.train.images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert int(splits.train.labels[0]) == 0 and int(splits.train.images.max()) == 255
    assert splits.train.normalization == Normalization((0.306,), (0.3763,)) == splits.test.normalization
    assert torch.equal(splits.train.images, load_digits().train.images)


def test_split_keeps_proportions_and_loses_nothing():
    data = ImageSet(torch.arange(100.0).view(-1, 1, 1, 1), (torch.arange(100) < 30).long(), ("a", "b"))
    train, test = stratified_split(data, 0.2, seed=1)
    assert test.labels.bincount().tolist() == [14, 6] and len(train) == 80
    assert sorted(torch.cat([train.images, test.images]).flatten().tolist()) == list(range(100))
    again = stratified_split(data, 0.2, seed=1)[1]
    other = stratified_split(data, 0.2, seed=2)[1]
    assert torch.equal(test.images, again.images) and not torch.equal(test.images, other.images)


def test_split_refuses_a_class_of_one_and_a_share_of_one():
    data = ImageSet(torch.zeros(3, 1, 1, 1), torch.tensor([0, 0, 1]), ("a", "b"))
    with pytest.raises(DataError, match=r"class 'b' has 1 image"):
        stratified_split(data, 0.2, 0)
    with pytest.raises(InputError, match=r"test_share .* got 1.0"):
        stratified_split(data, 1.0, 0)


def test_splits_must_agree():
    one = ImageSet(torch.zeros(1, 1, 2, 2), torch.tensor([0]), ("a",))
    with pytest.raises(DataError, match="same classes"):
        DataSplits("x", one, ImageSet(one.images, one.labels, ("b",)))
    with pytest.raises(DataError, match=r"same shape, got \(1, 2, 2\) and \(1, 3, 3\)"):
        DataSplits("x", one, ImageSet(torch.zeros(1, 1, 3, 3), one.labels, ("a",)))
    with pytest.raises(DataError, match="no test images"):
        DataSplits("x", one, ImageSet(torch.zeros(0, 1, 2, 2), torch.zeros(0).long(), ("a",)))


def test_resizing_keeps_type_and_flat_images():
    flat = ImageSet(torch.full((2, 3, 8, 8), 77, dtype=torch.uint8), torch.tensor([0, 0]), ("a",))
    splits = DataSplits("x", flat, flat).resized(5, 4)
    assert splits.train.image_shape == (3, 5, 4) and splits.test.images.unique().tolist() == [77]


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_plain_and_packed(tmp_path, packed):
    arrays = write_idx(tmp_path, packed)
    splits = load_idx("mnist", tmp_path, MNIST_CLASSES)
    assert np.array_equal(splits.train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert splits.test.labels.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert splits.test.normalization == splits.train.normalization is not None


def test_idx_refusals_name_the_file(tmp_path):
    write_idx(tmp_path, False)
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"images-idx3-ubyte must have 256 bytes .* got 255"):
        load_idx("mnist", tmp_path, MNIST_CLASSES)
    with pytest.raises(DataError, match="begins with 00000803, not 00000801"):
        read_idx(images, 1)
    images.write_bytes(whole)
    labels.write_bytes(idx_bytes(np.full(20, 10, np.uint8)))
    with pytest.raises(DataError, match=r"train files: labels must lie in 0\.\.9"):
        load_idx("mnist", tmp_path, MNIST_CLASSES)
    labels.unlink()
    with pytest.raises(DataError, match="lacks train-labels-idx1-ubyte"):
        load_idx("mnist", tmp_path, MNIST_CLASSES)
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(DataError, match=r"x.gz cannot be read"):
        read_idx(packed, 3)


def test_folder_without_parts_is_split_by_class(tmp_path):
    write_pictures(tmp_path)
    splits = load_folder(tmp_path)
    assert splits.train.classes == ("cat", "dog") and splits.train.image_shape == (3, 5, 6)
    assert splits.train.labels.tolist() == [0] * 4 + [1] * 4 and splits.test.labels.tolist() == [0, 1]
    reds = sorted(splits.train.images[:, 0, 0, 0].tolist() + splits.test.images[:, 0, 0, 0].tolist())
    assert reds == [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]


def test_folder_with_parts_sizes_and_gray_among_colours(tmp_path):
    write_pictures(tmp_path / "train")
    write_pictures(tmp_path / "val", count=2)
    write_picture(tmp_path / "val" / "dog" / "big.jpg", 50, "L", (12, 10))
    splits = load_folder(tmp_path)
    assert (len(splits.train), len(splits.test)) == (10, 5)
    assert splits.test.image_shape == (3, 5, 6) and splits.test.images[-1, :, 2, 2].tolist() == [50, 50, 50]
    assert load_folder(tmp_path, PictureForm((8, 9))).train.image_shape == (3, 8, 9)


def test_gray_folder_has_one_channel_and_16_bits_are_scaled(tmp_path):
    for name in ("a", "b"):
        write_picture(tmp_path / name / "0.png", 80, "L")
        write_picture(tmp_path / name / "1.png", 80 * 257, "I;16")
    splits = load_folder(tmp_path)
    assert splits.train.image_shape == (1, 5, 6)
    assert torch.cat([splits.train.images, splits.test.images]).unique().tolist() == [80]


def test_folder_refusals(tmp_path):
    with pytest.raises(DataError, match="no class folders with pictures"):
        load_folder(tmp_path)
    write_pictures(tmp_path, ("cat",))
    with pytest.raises(DataError, match=r"one class only \(cat\)"):
        load_folder(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match=r"class folder .*dog has no pictures"):
        load_folder(tmp_path)
    (tmp_path / "dog" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"broken.png is not a readable picture"):
        load_folder(tmp_path)


def test_cut_picture_is_named(tmp_path):
    write_pictures(tmp_path)
    Image.effect_noise((64, 64), 50).convert("RGB").save(tmp_path / "dog" / "cut.jpg")
    raw = (tmp_path / "dog" / "cut.jpg").read_bytes()
    (tmp_path / "dog" / "cut.jpg").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(DataError, match=r"cut.jpg is not a readable picture"):
        load_folder(tmp_path)


def test_parts_with_other_classes_are_refused(tmp_path):
    write_pictures(tmp_path / "train", ("cat", "dog"))
    write_pictures(tmp_path / "test", ("cat", "cow"))
    with pytest.raises(DataError, match="only in one of them: cow, dog"):
        load_folder(tmp_path)


def test_npz_in_both_forms_and_both_orders(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    labels = np.arange(20) % 2
    np.savez(tmp_path / "whole.npz", images=images, labels=labels)
    splits = load_npz(tmp_path / "whole.npz")
    assert splits.train.image_shape == (3, 6, 5) and (len(splits.train), len(splits.test)) == (16, 4)
    first = images.transpose(0, 3, 1, 2)
    np.savez(
        tmp_path / "split.npz", x_train=first, y_train=labels[:, None], x_test=images[:4], y_test=labels[:4]
    )
    splits = load_npz(tmp_path / "split.npz")
    assert torch.equal(splits.train.images[:4], splits.test.images) and splits.name == "split"


def test_npz_refusals(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, pictures=np.zeros(3))
    with pytest.raises(DataError, match=r"must have the keys images, labels or .*; found pictures"):
        load_npz(path)
    np.savez(path, images=np.array([{}]), labels=np.zeros(1))
    with pytest.raises(DataError, match=r"x.npz cannot be read as plain numpy arrays"):
        load_npz(path)
    path.write_bytes(b"PK no zip")
    with pytest.raises(DataError, match=r"x.npz cannot be read"):
        load_npz(path)
    np.savez(path, images=np.full((4, 1, 2, 2), 300), labels=np.zeros(4, int))
    with pytest.raises(DataError, match=r"x.npz: whole-number images must lie in 0..255, got 300..300"):
        load_npz(path)


class Listed(Dataset):
    """A Dataset over a list, as users write them."""

    def __init__(self, items: list) -> None:
        self.items = items
        self.classes = ["no", "yes"]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        return self.items[index]


@pytest.mark.parametrize(
    "image",
    [
        Image.new("RGB", (4, 5), (9, 9, 9)),
        np.full((5, 4, 3), 9, np.uint8),
        torch.full((3, 5, 4), 9, dtype=torch.uint8),
    ],
    ids=["picture", "array", "tensor"],
)
def test_items_of_a_dataset_become_images(image):
    data = as_images(Listed([(image, 1), (image, np.int64(0))])).in_memory()
    assert data.image_shape == (3, 5, 4) and data.images.unique().tolist() == [9]
    assert data.labels.tolist() == [1, 0] and data.classes == ("no", "yes")


def test_an_image_set_is_kept_as_it_is():
    data = ImageSet(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([0]), ("a",))
    assert as_images(data) is data


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Listed([(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 2), 0)]), r"item 1 .* \(1, 3, 2\).* item 0"),
        (Listed([(torch.zeros(1, 2, 2), 0.5)]), r"item 0 .* whole class index, got 0.5"),
        (Listed([torch.zeros(3)]), r"item 0 .* pair"),
        (Listed([]), "no items"),
        ((torch.zeros(2, 1, 2, 2), torch.tensor([0.0, 1.0])), "whole-number class indices"),
        ((torch.zeros(2, 1, 2, 2), [0, -1]), r"got -1\.\.0"),
        ((torch.zeros(2, 1, 2, 2), [0]), "2 images need as many labels"),
        ((torch.full((1, 1, 2, 2), float("nan")), [0]), "not finite"),
        ((torch.zeros(2, 4), [0, 1]), r"got \(2, 4\)"),
        (torch.zeros(2, 1, 2, 2), "cannot take images from Tensor"),
        (3, "cannot take images from int"),
    ],
)
def test_conversion_refusals_say_what_is_wrong(given, message):
    with pytest.raises(DataError, match=message):
        as_images(given)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%Page: 1 1\nshowpage\n%%EOF\n"


def test_a_picture_is_what_it_holds_not_what_it_is_called(tmp_path, monkeypatch):
    def started(*_args, **_options):
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    for kind in "ab":
        (tmp_path / kind).mkdir()
        Image.new("L", (8, 8)).save(tmp_path / kind / "1.png")
        Image.new("L", (8, 8)).save(tmp_path / kind / "2.jpg")
    assert load_folder(tmp_path).train.image_shape == (1, 8, 8)
    (tmp_path / "a" / "3.png").write_bytes(EPS)
    with pytest.raises(DataError, match=r"3\.png is not a readable picture"):
        load_folder(tmp_path)


def test_pictures_of_other_kinds_are_not_left_out_in_silence(tmp_path):
    for kind, name in (("a", "1.png"), ("b", "1.png"), ("b", "2.webp")):
        (tmp_path / kind).mkdir(exist_ok=True)
        Image.new("L", (8, 8)).save(tmp_path / kind / name)
    with pytest.raises(DataError, match=r"2\.webp cannot be read, only PNG and JPEG"):
        load_folder(tmp_path)
