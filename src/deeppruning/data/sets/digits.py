"""The embedded data set: 1,797 handwritten digits of 8x8 pixels, real images without a download.

Source: the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/); made from scikit-learn's copy, values unchanged.

>>> splits = load_digits()
>>> len(splits.train), len(splits.test), splits.train.image_shape
(1437, 360, (1, 8, 8))
"""

from pathlib import Path

import numpy as np
import torch

from deeppruning.data.images import ImageSet
from deeppruning.data.registry import DATA_SETS, DataLocation, NamedData
from deeppruning.data.splits import DataSplits, stratified_split

FILE = Path(__file__).parent.parent / "files" / "digits.npz"
LEVELS = 16  # ink is counted in 0..16, as 4x4 black or white dots per pixel


def load_digits() -> DataSplits:
    """All digits in one fixed stratified split, scaled from 0..16 to 0..255."""
    with np.load(FILE, allow_pickle=False) as stored:
        counts, labels = stored["images"], stored["labels"]
    scaled = np.rint(counts * (255 / LEVELS)).astype(np.uint8)
    data = ImageSet(
        torch.from_numpy(scaled).unsqueeze(1),
        torch.from_numpy(labels.astype(np.int64)),
        tuple(str(digit) for digit in range(10)),
    )
    train, test = stratified_split(data)
    return DataSplits("digits", train, test).with_normalization(train.measure())


DATA_SETS.add(
    NamedData(
        name="digits",
        about="1,797 handwritten digits, 8x8, gray, 10 classes",
        looked_for=FILE.name,
        how_to_get="comes with the package",
        find=lambda folder: DataLocation(FILE, load_digits),
        elsewhere=(FILE.parent,),
    ),
    place=10,
)
