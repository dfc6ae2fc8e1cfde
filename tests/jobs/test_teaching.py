"""Networks that are fine-tuned alike see the same batches, so that their teacher is asked once for all."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.jobs.result import Result
from deeppruning.searching import task
from deeppruning.searching.events import EpochDone
from deeppruning.training.distillation import CachedTeacher
from search_helpers import digits, outcome, quick_finetune, quick_search, tiny_net

EPOCHS, BATCHES = 2, 4
WHOLE = sum(each.numel() for each in tiny_net().parameters())


class Counted(nn.Module):
    """The tiny network, which counts its calls by the images it sees, whatever copies are made of it."""

    seen: ClassVar[Counter[bytes]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.net = tiny_net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = sum(each.numel() for each in self.parameters()) == WHOLE
        if whole and not self.training:
            Counted.seen[x.numpy().tobytes()] += 1
        out: torch.Tensor = self.net(x)
        return out


def asked() -> list[int]:
    """How often the teacher was asked about each batch of a training; the graph has its own examples."""
    return [count for seen, count in Counted.seen.items() if len(seen) == 50 * 64 * 4]


def run(path: Path) -> Result:
    train, _ = digits()
    return dp.prune(
        Counted(),
        train,
        run_dir=path,
        search=quick_search(generations=1, mutation=0.4),
        finetune=quick_finetune(epochs=EPOCHS, distill=0.9, features=0.0),
        workers=1,
        report=False,
    )


def test_the_teacher_is_asked_once_and_the_networks_are_those_of_a_teacher_asked_each_time(
    tmp_path, monkeypatch
):
    Counted.seen.clear()
    result = run(tmp_path / "once")
    networks = len({result.knee.id, result.heavy.id, result.light.id})
    assert networks > 1
    assert asked() == [1] * EPOCHS * BATCHES
    assert not list((tmp_path / "once/finetune").glob("teacher*"))  # nobody is left to be told
    monkeypatch.setattr(task, "MOST_BYTES", 50)
    Counted.seen.clear()
    run(tmp_path / "each")
    assert asked() == [networks] * EPOCHS * BATCHES
    assert outcome(tmp_path / "once") == outcome(tmp_path / "each")


@pytest.mark.parametrize(
    "damage",
    [None, pytest.param(b"", marks=pytest.mark.slow), pytest.param(b"nonsense", marks=pytest.mark.slow)],
)
def test_answers_are_kept_for_candidates_trained_later_and_asked_for_again_if_damaged(tmp_path, damage):
    ids = [one.id for one in run(tmp_path / "run").candidates[1:3]]
    options = quick_finetune(epochs=1, distill=0.9, features=0.0)
    train = digits()[0]

    def tune(id_):
        return dp.finetune(
            tmp_path / "run", Counted(), train, candidate=id_, finetune=options, report=False
        ).model

    tune(ids[0])
    (answers,) = (tmp_path / "run/finetune").glob("*/teacher.round-1")
    whole = answers.read_bytes()
    if damage is not None:
        answers.write_bytes(damage or whole[:-3] + b"bad")
    Counted.seen.clear()
    tune(ids[1])
    assert len(asked()) == (0 if damage is None else BATCHES)
    assert answers.read_bytes() == whole


def test_what_was_answered_to_other_images_is_not_told(tmp_path):
    torch.manual_seed(0)
    teacher, images = nn.Linear(4, 3), torch.randn(12, 4)
    first = CachedTeacher(teacher, tmp_path / "answers")
    for part in images.split(4):
        first(part)
    first.write()
    whole = (tmp_path / "answers").read_bytes()
    for others in (torch.cat([images[:4], images[8:], images[4:8]]), torch.cat([images, images])):
        again = CachedTeacher(teacher, tmp_path / "answers")
        for part in others.split(4):
            assert torch.equal(again(part), teacher(part))
        again.write()
        assert (tmp_path / "answers").read_bytes() == whole


def test_what_is_known_is_repeated_in_order(tmp_path):
    torch.manual_seed(0)
    teacher, images = nn.Linear(4, 3), torch.randn(10, 4)
    first = CachedTeacher(teacher, tmp_path / "answers")
    wanted = [first(part) for part in images.split(4)]
    first.write()
    teacher.weight.data.zero_()
    again = CachedTeacher(teacher, tmp_path / "answers")
    for part, answer in zip(images.split(4), wanted, strict=True):
        assert torch.equal(again(part), answer)


@pytest.mark.parametrize("asked", [0, 1])
def test_nothing_is_written_where_nothing_was_asked(tmp_path, asked):
    one = CachedTeacher(nn.Linear(4, 3), tmp_path / "answers")
    for _ in range(asked):
        one(torch.zeros(2, 4))
    one.write()
    assert (tmp_path / "answers").exists() == bool(asked)


def test_activations_are_compared_alike_by_any_number_of_workers_and_after_a_stop(tmp_path):
    train, _ = digits()

    class Stopped(Exception):
        pass

    def stop(event) -> None:
        if isinstance(event, EpochDone) and event.report.epoch == 1:
            raise Stopped

    def prune(path: Path, workers: int, observer=lambda event: None) -> None:
        dp.prune(
            tiny_net(), train, run_dir=path, workers=workers, report=False, observer=observer,
            search=quick_search(generations=1, mutation=0.4),
            finetune=quick_finetune(epochs=EPOCHS, distill=0.9, features=1.0),
        )  # fmt: skip

    prune(tmp_path / "one", 1)
    prune(tmp_path / "two", 2)
    with pytest.raises(Stopped):
        prune(tmp_path / "stopped", 1, stop)
    dp.resume(tmp_path / "stopped", tiny_net(), train, workers=1, report=False)
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two") == outcome(tmp_path / "stopped")
    plain = tmp_path / "plain"
    dp.prune(
        tiny_net(), train, run_dir=plain, workers=1, report=False,
        search=quick_search(generations=1, mutation=0.4),
        finetune=quick_finetune(epochs=EPOCHS, distill=0.9, features=0.0),
    )  # fmt: skip
    assert outcome(plain) != outcome(tmp_path / "one")
