"""A search whose worker is stopped, and where the time limit that ends the wait comes from."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import deeppruning as dp
from deeppruning.backends import InProcessBackend, PoolBackend
from deeppruning.backends.local import local_backend
from deeppruning.backends.registry import Wanted
from deeppruning.comparison.problem import Work, kind_of_call
from deeppruning.errors import InputError
from deeppruning.jobs.prepare import Compute, prepare
from deeppruning.jobs.rounds import Round, kind_of_round, run_round
from deeppruning.searching.events import CandidateDone
from search_helpers import EXAMPLE, SignalsItsWorkerOnce, digits, quick_search, tiny_net


@pytest.mark.slow
def test_a_stopped_worker_costs_a_retry(tmp_path: Path) -> None:
    events: list[Any] = []
    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=SignalsItsWorkerOnce(tmp_path / "mark", signal.SIGSTOP),
        example_input=EXAMPLE,
        search=quick_search(),
        backend=PoolBackend(workers=1, timeout=3),
        observer=events.append,
    )
    assert all(candidate.status == "ok" for candidate in result.candidates)
    attempts = [event.attempts for event in events if isinstance(event, CandidateDone)]
    assert sorted(attempts)[-2:] == [1, 2]


def made(**options: Any) -> Any:
    train, test = digits()
    compute = Compute(**options)
    return prepare(tiny_net(), train, test, search=quick_search(), compute=compute, measure=False).backend


def test_where_the_limit_goes() -> None:
    assert isinstance(made(workers=1), InProcessBackend)
    assert made(workers=2).timeout == "auto"
    assert made(backend=PoolBackend(workers=1, timeout=30)).timeout == 30.0
    assert isinstance(local_backend(Wanted(workers=1, timeout="off")), InProcessBackend)
    alone = local_backend(Wanted(workers=1, timeout=30))
    assert isinstance(alone, PoolBackend) and (alone.workers, alone.timeout) == (1, 30.0)
    with pytest.raises(InputError, match="auto, off or a number"):
        PoolBackend(workers=2, timeout=-1)


def test_a_test_of_the_original_says_nothing_about_rounds_of_training() -> None:
    genome = torch.ones(3, dtype=torch.bool).numpy()
    rounds = [Round(genome, number, None, last=number != 1, seed=0) for number in (0, 1, 2)]
    assert [kind_of_round(item) for item in rounds] == ["test", "training", "training"]
    kinds = [kind_of_call(Work(run_round, item)) for item in rounds]
    kinds.append(kind_of_call(Work(len, genome)))
    assert kinds == ["run_round test", "run_round training", "run_round training", "len "]
