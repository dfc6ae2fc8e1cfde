"""Widths that this machine is fast at: measured, written into the run, kept to by counted targets."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.jobs.prepare import Job, prepare
from deeppruning.limits import Limits
from deeppruning.runs import RunFolder, facts
from deeppruning.searching.events import Started
from deeppruning.targets import aiming
from search_helpers import digits, quick_finetune, quick_guided, tiny_net
from width_helpers import keep_times


class Wide(nn.Module):
    """Layers of 16 and 32 filters, and blocks that may go."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.middle = nn.Conv2d(16, 32, 3, 2, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(3))
        self.second = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.middle(torch.relu(self.stem(x))))
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(torch.relu(first(x)))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


@lru_cache
def wide() -> Wide:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Wide().eval()


def job_of(model: nn.Module, target: str | None = None, **options: Any) -> Job:
    train, _ = digits()
    return prepare(model, train, search=quick_guided(**options), target=Limits.of(target))


@pytest.fixture
def block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> int:
    """A machine whose convolutions come in blocks of this many filters."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_times(block=request.param)
    return int(request.param)


@pytest.mark.parametrize("block", [4, 8, 16], indirect=True)
def test_the_multiple_is_the_one_that_was_measured(block: int) -> None:
    job = job_of(wide(), "flops=40%")
    assert job.search.round_to == block and set(job.multiples or {}) and job.search.multiples == block
    kept = job.context.graph.widths(np.zeros(job.context.graph.num_genes, bool))
    assert {each % block for each, _ in kept.values()} == {0}


@pytest.mark.parametrize("block", [16], indirect=True)
def test_a_network_without_room_for_a_multiple_gets_half_of_it(block: int) -> None:
    # Without depth, multiples of 16 leave a third of the FLOPs.
    assert job_of(wide(), depth=False).search.round_to == block // 2


def test_nothing_is_measured_where_it_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiming, "find_multiples", None)
    assert job_of(wide(), "flops=40%", round_to=1).search.round_to == 1
    assert job_of(tiny_net()).search.round_to is None
    assert job_of(tiny_net(), "flops=40%").search.round_to == 1
    train, _ = digits()
    paper = prepare(wide(), train, search=dp.SearchConfig.paper(sample=60))
    assert paper.search.round_to is None and paper.context.graph.groups[0].multiple == 1


@pytest.mark.parametrize("block", [16], indirect=True)
def test_a_counted_target_is_met_from_below_in_multiples_and_a_run_goes_on_with_its_own(
    block: int, tmp_path: Path
) -> None:
    train, _ = digits()
    told: list[Any] = []
    result = dp.prune(
        wide(),
        train,
        run_dir=tmp_path / "run",
        search=quick_guided(generations=2),
        finetune=quick_finetune(epochs=0),
        target={"flops": 0.4},
        workers=1,
        observer=told.append,
    )
    graph = result.meter.context.graph
    assert result.target is not None
    assert result.target.flops <= 0.4 * result.original.flops
    assert any(0.36 < one.flops / result.original.flops <= 0.4 for one in result.candidates)
    for one in result.candidates:
        assert all(kept % block == 0 for kept, _ in graph.widths(one.genome).values())
    (started,) = [event for event in told if isinstance(event, Started)]
    assert "widths in multiples of 16, measured to be fast (torch" in started.widths
    keep_times(block=8)  # as on another machine
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        assert run.config["search"]["round_to"] == block
        assert set((run.history.get_fact(facts.MULTIPLES) or {}).values()) == {block}
    again = dp.resume(tmp_path / "run", wide(), train, workers=1)
    assert again.target is not None and again.target.id == result.target.id
    page = (tmp_path / "run" / "report.html").read_text()
    assert "fast multiples in torch" in page
