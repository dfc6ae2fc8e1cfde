"""A run on disk: its folder, its options and the history of everything that was evaluated."""

from deeppruning.genome import pack_genome, unpack_genome
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.history import History
from deeppruning.runs.records import Candidate, EpochRow, Evaluation, Status

__all__ = [
    "Candidate",
    "EpochRow",
    "Evaluation",
    "History",
    "RunFolder",
    "Status",
    "pack_genome",
    "unpack_genome",
]
