"""A run on disk: its folder, its options and the history of everything that was evaluated."""

from deeppruning.genome import pack_genome, unpack_genome
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.history import History
from deeppruning.runs.records import CandidateRow, EpochRow, Evaluation, PickRow, Status

__all__ = [
    "CandidateRow",
    "EpochRow",
    "Evaluation",
    "History",
    "PickRow",
    "RunFolder",
    "Status",
    "pack_genome",
    "unpack_genome",
]
