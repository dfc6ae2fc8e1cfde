"""Whether a network is any better than guessing, as far as so many images can tell.

>>> labels = torch.arange(360) % 10
>>> is_guessing(0.8944, labels), is_guessing(0.5, labels)
(True, False)
"""

import math

import torch
from torch import Tensor

SURE = 0.01  # guessing that does as well less often than this is no explanation
HARDLY = 0.9  # of the error of guessing: what learnt that little was not trained, or is fed wrongly


def is_guessing(error: float, labels: Tensor) -> bool:
    """Whether always naming the commonest class could do as well on images with these labels.

    A one-sided binomial test: how often do guesses get at least as many right?
    """
    images = len(labels)
    share = 1.0 - guessing_error(labels)
    right = images - round(error * images)
    if right == images:
        return False
    if right <= images * share:
        return True
    log_odds = math.log(share) - math.log1p(-share)
    tail = 0.0
    for count in range(right, images + 1):
        ways = math.lgamma(images + 1) - math.lgamma(count + 1) - math.lgamma(images - count + 1)
        term = math.exp(ways + count * log_odds + images * math.log1p(-share))
        tail += term
        if term < SURE * 1e-6:  # beyond the mean they only fall
            break
    return tail >= SURE


def guessing_error(labels: Tensor) -> float:
    """The error of always naming the commonest class.

    >>> guessing_error(torch.tensor([0, 1, 1, 1]))
    0.25
    """
    return 1.0 - int(torch.bincount(labels).max()) / len(labels)


def guessing_note(error: float, labels: Tensor, images: str) -> str:
    """A warning for a network that is hardly better than guessing, with what to check; else nothing.

    `images` says which they are, as in "images of the test set".
    """
    if not len(labels):
        return ""
    guessed = guessing_error(labels)
    # Where one class is most of the images, little better may be a lot.
    hardly = error > max(HARDLY * guessed, 0.5)
    if not (guessing := is_guessing(error, labels)) and not hardly:
        return ""
    return (
        f"WARNING: the network is {'no' if guessing else 'hardly'} better than guessing: it errs on "
        f"{100 * error:.2f} % of {len(labels):,} "
        f"{images}, and always naming the commonest class errs on {100 * guessed:.2f} %. "
        "Check that it is given images of the size it was trained on (--image-size), normalised alike "
        "(--mean, --std), that these are its trained weights, and that the classes are in the same order."
    )
