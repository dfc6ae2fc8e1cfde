"""A sample in two parts: no image in both, every class in either."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.data.images import ImageSet
from deeppruning.data.sample import balanced_sample, split_balanced


def numbered(labels: list[int], classes: int) -> ImageSet:
    """Each image shows its own place."""
    images = torch.arange(len(labels), dtype=torch.float32).view(-1, 1, 1, 1)
    return ImageSet(images, torch.tensor(labels), tuple("abcdefgh"[:classes]))


def places(part: ImageSet) -> list[int]:
    return [int(value) for value in part.images.flatten()]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.data())
def test_the_parts_are_the_whole_without_repetition_in_its_order(labels, data):
    first = data.draw(st.integers(1, len(labels) - 1))
    whole = numbered(labels, 5)
    one, two = split_balanced(whole, first)
    assert len(one) == first
    assert sorted(places(one) + places(two)) == list(range(len(labels)))
    assert places(one) == sorted(places(one)) and places(two) == sorted(places(two))
    for part in (one, two):
        assert part.labels.tolist() == [labels[place] for place in places(part)]
        assert part.classes == whole.classes


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(1, 12), st.data())
def test_of_a_balanced_whole_the_parts_are_balanced(classes, each, data):
    labels = data.draw(st.permutations([label for label in range(classes) for _ in range(each)]))
    first = data.draw(st.integers(1, classes * each - 1))
    for part in split_balanced(numbered(list(labels), classes), first):
        counts = part.labels.bincount(minlength=classes)
        assert int(counts.max() - counts.min()) <= 1


def test_a_class_with_one_image_gives_it_to_the_first_part():
    one, two = split_balanced(numbered([0, 0, 0, 0, 1], 2), 2)
    assert (one.labels.tolist(), two.labels.tolist()) == ([0, 1], [0, 0, 0])


def test_a_sample_is_split_the_same_way_every_time():
    data = numbered([0, 1] * 40, 2)
    sample = balanced_sample(data, 20, seed=3)
    first, again = (split_balanced(sample, 7) for _ in range(2))
    assert all(places(a) == places(b) for a, b in zip(first, again, strict=True))
