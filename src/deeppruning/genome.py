"""Genomes as bytes, eight genes in each, the first gene in the highest bit.

>>> pack_genome(np.array([True, False, True])).hex()
'a0'
>>> unpack_genome(b"\\xa0", 3)
array([ True, False,  True])
"""

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import RunError


def pack_genome(genome: NDArray[np.bool_]) -> bytes:
    """The genome's bits, padded with zeros to whole bytes."""
    return np.packbits(np.asarray(genome, dtype=np.bool_)).tobytes()


def unpack_genome(packed: bytes, num_genes: int) -> NDArray[np.bool_]:
    """The genome that `pack_genome` packed; its length must be known, as the padding hides it."""
    if num_genes < 0 or len(packed) != -(-num_genes // 8):
        raise RunError(f"a genome of {num_genes} genes takes {-(-num_genes // 8)} bytes, got {len(packed)}")
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=num_genes).astype(np.bool_)
