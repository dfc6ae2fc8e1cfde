"""MNIST and Fashion-MNIST by name, from their IDX files."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from deeppruning.data.idx import FASHION_CLASSES, MNIST_CLASSES, find_idx, load_idx
from deeppruning.data.known import KNOWN, Found, KnownData

DEBIAN_FASHION = Path("/usr/share/dataset-fashion-mnist")


def _known(name: str, about: str, folders: tuple[str, ...], classes: tuple[str, ...], url: str) -> KnownData:
    def find(folder: Path) -> Found | None:
        inside = [folder / one for one in folders]
        # Both sets use the same file names: only the folder's own name can tell them apart.
        if ("fashion" in folder.name.lower()) == ("fashion" in name):
            inside.append(folder)
        path = find_idx(inside)
        return Found(path, partial(load_idx, name, path, classes)) if path else None

    return KnownData(
        name=name,
        about=about,
        looked_for=f"train-images-idx3-ubyte[.gz] and the other three in {' or '.join(folders)}",
        how_to_get=f"put the four IDX files from {url} into the data folder under {folders[0]}",
        find=find,
    )


MNIST = _known(
    "mnist",
    "70,000 handwritten digits, 28x28, gray, 10 classes",
    ("mnist", "MNIST/raw"),
    MNIST_CLASSES,
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
FASHION = _known(
    "fashion-mnist",
    "70,000 pieces of clothing, 28x28, gray, 10 classes",
    ("fashion-mnist", "FashionMNIST/raw"),
    FASHION_CLASSES,
    "https://github.com/zalandoresearch/fashion-mnist",
)
KNOWN.add(MNIST, place=30)
KNOWN.add(
    replace(
        FASHION,
        how_to_get=f"{FASHION.how_to_get}; on Debian: apt install dataset-fashion-mnist",
        elsewhere=(DEBIAN_FASHION,),
    ),
    place=30,
)
