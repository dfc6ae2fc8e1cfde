"""A solution on disk: safetensors with the thin weights, and in its metadata all that a reader needs."""

import json
from collections.abc import Mapping

from deeppruning.graph import ChannelGraph
from deeppruning.search.result import Solution
from deeppruning.training.checkpoint import write_tensors

FORMAT = "deeppruning-solution/1"


def save_solution(solution: Solution, graph: ChannelGraph, description: Mapping[str, str]) -> None:
    """Write the solution whole or not at all; the same solution gives the same bytes."""
    metadata = {
        "format": FORMAT,
        "role": solution.role,
        "candidate": str(solution.id),
        "flops": str(solution.flops),
        "params": str(solution.params),
        "train_error": json.dumps(solution.train_error),
        "test_error": json.dumps(solution.test_error),
        **description,
    }
    write_tensors(solution.path, solution.model.state_dict(), metadata)
