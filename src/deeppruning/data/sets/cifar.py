"""CIFAR-10 and CIFAR-100 by name: in any layout they are handed out in, or from their site."""

from functools import partial
from pathlib import Path

from deeppruning.data.cifar import CIFAR10, CIFAR100, Cifar, find_cifar, load_cifar
from deeppruning.data.download import SITE, download_cifar
from deeppruning.data.known import KNOWN, Found, KnownData


def _known(kind: Cifar, about: str) -> KnownData:
    def find(folder: Path) -> Found | None:
        place = find_cifar(kind, folder)
        return Found(place[0], partial(load_cifar, kind, *place)) if place else None

    return KnownData(
        name=kind.name,
        about=about,
        looked_for=", ".join(name for layout in kind.layouts for name in (layout.folder, layout.archive)),
        how_to_get=f"--download, or put {SITE}{kind.layouts[0].archive} into the data folder",
        find=find,
        download=partial(download_cifar, kind.name),
    )


KNOWN.add(_known(CIFAR10, "60,000 photographs, 32x32, colour, 10 classes"), place=20)
KNOWN.add(_known(CIFAR100, "60,000 photographs, 32x32, colour, 100 classes"), place=20)
