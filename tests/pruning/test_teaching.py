"""Networks that are fine-tuned alike see the same batches, so that their teacher is asked once for all."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.pruning.result import Result
from deeppruning.runs import RunFolder
from deeppruning.training import teaching
from deeppruning.training.teaching import Teaching
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


def run(path: Path) -> Result:
    train, _ = digits()
    return dp.prune(
        Counted(),
        train,
        run_dir=path,
        search=quick_search(generations=1, mutation=0.4),
        finetune=quick_finetune(epochs=EPOCHS, distill=0.9),
        workers=1,
        report=False,
    )


def test_the_teacher_is_asked_once_and_the_networks_are_those_of_a_teacher_asked_each_time(
    tmp_path, monkeypatch
):
    Counted.seen.clear()
    result = run(tmp_path / "once")
    asked = [count for seen, count in Counted.seen.items() if len(seen) == 50 * 64 * 4]
    networks = len({result.knee.id, result.heavy.id, result.light.id})
    assert networks > 1
    assert asked == [1] * EPOCHS * BATCHES
    kept = sorted(path.name for path in (tmp_path / "once/finetune").glob("teacher*"))
    assert kept == ["teacher.round-1", "teacher.round-2"]
    monkeypatch.setattr(teaching, "MOST_BYTES", 50)
    Counted.seen.clear()
    run(tmp_path / "each")
    asked = [count for seen, count in Counted.seen.items() if len(seen) == 50 * 64 * 4]
    assert asked == [networks] * EPOCHS * BATCHES
    assert not list((tmp_path / "each/finetune").glob("teacher*"))
    assert outcome(tmp_path / "once") == outcome(tmp_path / "each")


def test_answers_that_were_damaged_are_asked_for_again(tmp_path):
    run(tmp_path / "run")
    before = outcome(tmp_path / "run")
    folder = tmp_path / "run/finetune"
    for path in folder.glob("candidate-*"):
        path.unlink()
    answers = folder / "teacher.round-2"
    whole = answers.read_bytes()
    answers.write_bytes(whole[:-3] + b"bad")
    with RunFolder.open(tmp_path / "run") as opened:
        for id_ in {pick for picks in opened.history.picks().values() for pick in picks.values()}:
            opened.history.forget_epochs(f"candidate-{id_}")
    dp.resume(tmp_path / "run", Counted(), digits()[0], workers=1)
    assert answers.read_bytes() == whole
    assert outcome(tmp_path / "run") == before


def test_what_is_known_is_repeated_in_order(tmp_path):
    torch.manual_seed(0)
    teacher, images = nn.Linear(4, 3), torch.randn(10, 4)
    first = Teaching(teacher, tmp_path / "answers")
    wanted = [first(part) for part in images.split(4)]
    first.write()
    teacher.weight.data.zero_()
    again = Teaching(teacher, tmp_path / "answers")
    for part, answer in zip(images.split(4), wanted, strict=True):
        assert torch.equal(again(part), answer)


@pytest.mark.parametrize("asked", [0, 1])
def test_nothing_is_written_where_nothing_was_asked(tmp_path, asked):
    one = Teaching(nn.Linear(4, 3), tmp_path / "answers")
    for _ in range(asked):
        one(torch.zeros(2, 4))
    one.write()
    assert (tmp_path / "answers").exists() == bool(asked)
