"""Which input normalisation to use: the user's, that of the weights, or that of the data set."""

from pathlib import Path

from deeppruning.data.splits import DataSplits
from deeppruning.errors import WeightsError
from deeppruning.training.weights import normalization_for


def with_right_normalization(
    splits: DataSplits, weights: Path | None, *, given: bool
) -> tuple[DataSplits, str]:
    """The data normalised as the network expects it, and a phrase that says whose normalisation it is.

    `given` tells that --mean and --std were, in which case `splits` has them already. Weights trained
    with one normalisation and fed another lose accuracy silently, hence the phrase.
    """
    if given:
        return splits, "given by --mean and --std"
    recorded = normalization_for(weights) if weights is not None else None
    if recorded is None:
        own = "of the data set" if splits.test.normalization is not None else "none"
        return splits, own if weights is None else f"{own} (the weights file records none)"
    channels = splits.test.image_shape[0]
    if len(recorded.mean) != channels:
        raise WeightsError(
            f"{weights} was trained on images of {len(recorded.mean)} channels, the data has {channels}; "
            "use data of the same kind, or give --mean and --std"
        )
    return splits.with_normalization(recorded), "recorded with the weights"
