"""A network that is no better than guessing is told from one that has learnt something."""

import math

import pytest
import torch

from deeppruning.training.evaluate import SURE, guessing_note, is_guessing


@pytest.mark.parametrize(("images", "classes"), [(20, 2), (60, 10), (360, 10)])
def test_as_the_binomial_distribution_says(images: int, classes: int) -> None:
    labels = torch.arange(images) % classes
    share = int(labels.bincount().max()) / images
    for right in range(images // 2):
        tail = sum(
            math.comb(images, count) * share**count * (1 - share) ** (images - count)
            for count in range(right, min(images, right + 60) + 1)
        )
        if abs(tail - SURE) > 1e-6 or right <= share * images:
            expected = right <= share * images or tail >= SURE
            assert is_guessing(1 - right / images, labels) == expected, right


def test_many_images_and_odd_ones() -> None:
    labels = torch.arange(50_000) % 10
    assert is_guessing(0.899, labels)
    assert not is_guessing(0.89, labels)
    assert is_guessing(1.0, labels)  # every answer wrong: classes in another order
    assert not is_guessing(0.0, torch.zeros(30, dtype=torch.int64))  # one class, all right
    lopsided = (torch.arange(1000) >= 950).long()
    assert is_guessing(0.05, lopsided)
    assert not is_guessing(0.02, lopsided)


def test_the_note_says_what_to_check() -> None:
    note = guessing_note(0.8944, torch.arange(360) % 10, "test images")
    assert "360 test images" in note and "89.44 %" in note
    assert "90.00 %" in note
    assert all(word in note for word in ("--image-size", "--mean", "weights", "classes"))
    assert guessing_note(0.2, torch.arange(360) % 10, "test images") == ""


def test_hardly_better_is_told_of_as_well() -> None:
    labels = torch.arange(360) % 10
    assert "hardly better than guessing: its error on 360 images is 81.67 %" in guessing_note(
        0.8167, labels, "images"
    )
    assert guessing_note(0.75, labels, "images") == ""
    lopsided = (torch.arange(100_000) >= 95_000).long()  # little is left to learn
    assert guessing_note(0.046, lopsided, "images") == "" != guessing_note(0.05, lopsided, "images")
