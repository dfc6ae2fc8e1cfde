"""What training tells while it runs: one report an epoch, and one a batch for progress bars."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochReport:
    """One epoch: loss and error over the (augmented) batches it trained on, and the test error after it.

    Epoch 0 is the network before training: it has neither loss nor training error.
    """

    epoch: int  # counted from 1
    train_loss: float | None
    train_error: float | None
    test_error: float | None
    lr: float  # of the epoch's last step
    images_per_second: float  # of training alone, without the test
    seconds: float  # training and test


@dataclass(frozen=True)
class BatchReport:
    """The state of an epoch after one of its batches; loss and error are means over the epoch so far."""

    epoch: int
    batch: int  # counted from 1
    batches: int
    train_loss: float
    train_error: float
    lr: float
    images_per_second: float
