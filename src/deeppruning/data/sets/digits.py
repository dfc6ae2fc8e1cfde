"""The digits that come with the package, by name."""

from deeppruning.data.digits import FILE, load_digits
from deeppruning.data.known import KNOWN, Found, KnownData

KNOWN.add(
    KnownData(
        name="digits",
        about="1,797 handwritten digits, 8x8, gray, 10 classes",
        looked_for=FILE.name,
        how_to_get="comes with the package",
        find=lambda folder: Found(FILE, load_digits),
        elsewhere=(FILE.parent,),
    ),
    place=10,
)
