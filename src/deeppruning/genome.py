"""Genomes: one bit for each filter that may go, as arrays, as bytes, and as the seeds that follow from them.

Packed, there are eight genes in a byte, the first gene in the highest bit.

>>> pack_genome(np.array([True, False, True])).hex()
'a0'
>>> unpack_genome(b"\\xa0", 3)
array([ True, False,  True])
"""

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import RunError

Genome: TypeAlias = NDArray[np.bool_]  # (genes,): True keeps what the gene stands for
Population: TypeAlias = NDArray[np.bool_]  # (n, genes): a genome a row


def pack_genome(genome: Genome) -> bytes:
    """The genome's bits, padded with zeros to whole bytes."""
    return np.packbits(np.asarray(genome, dtype=np.bool_)).tobytes()


def unpack_genome(packed: bytes, num_genes: int) -> Genome:
    """The genome that `pack_genome` packed; its length must be known, as the padding hides it."""
    if num_genes < 0 or len(packed) != -(-num_genes // 8):
        raise RunError(f"a genome of {num_genes} genes takes {-(-num_genes // 8)} bytes, got {len(packed)}")
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=num_genes).astype(np.bool_)


def candidate_seed(seed: int, genome: Genome) -> int:
    """The seed of everything random about one genome; it follows from the run's seed and the genome alone.

    >>> candidate_seed(0, np.array([True, False, True]))
    8420413636493180891
    """
    return derived_seed(seed, pack_genome(genome))


def derived_seed(seed: int, *purpose: int | str | bytes) -> int:
    """A seed of 63 bits for one purpose, unrelated to the seeds of other purposes."""
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in (seed, *purpose)]
    return int.from_bytes(hashlib.sha256(b"/".join(parts)).digest()[:8], "big") >> 1
