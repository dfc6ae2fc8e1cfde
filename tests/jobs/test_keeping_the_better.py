"""Fine-tuning hands out the better of a network before and after it, on images that it never trained on."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.jobs.prepare import prepare
from deeppruning.jobs.result import Result
from deeppruning.runs import EpochRow, RunFolder
from deeppruning.searching.events import EpochDone, Remark
from deeppruning.searching.task import Classification, Task
from deeppruning.training.evaluate import evaluate
from deeppruning.training.loop import TrainConfig, fit
from search_helpers import EXAMPLE, TinyNet, digits, quick_guided, quick_search, tiny_net

PLAIN: dict[str, Any] = {"epochs": 2, "batch_size": 50, "flip": False}
HARMFUL: dict[str, Any] = {**PLAIN, "crop": 0, "lr": 0.7, "schedule": "constant", "distill": 0.0}


@functools.cache
def _trained() -> dict[str, Tensor]:
    """Weights that were never shown a shifted digit."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TinyNet(12)
    fit(model, digits(400)[0], TrainConfig(epochs=15, batch_size=25, crop=0, flip=False, seed=1))
    return model.state_dict()


def trained_net() -> TinyNet:
    model = TinyNet(12)
    model.load_state_dict(_trained())
    return model


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The same run, without any fine-tuning."""
    return prune(tmp_path_factory.mktemp("untrained") / "run", **{**HARMFUL, "epochs": 0})


def prune(
    folder: Path,
    observer: Callable[[Any], None] = lambda event: None,
    evaluation: str = "refit",
    **options: Any,
) -> Result:
    train, test = digits(400)
    return dp.prune(
        trained_net(), train, test, run_dir=folder,
        search=quick_search(evaluation=evaluation, offspring=2, generations=1, mutation=0.2),
        finetune=dp.FinetuneConfig(**options), workers=1, observer=observer, report=False,
    )  # fmt: skip


def epochs_of(result: Result, id_: int) -> list[EpochRow]:
    with RunFolder.open(result.run_dir, read_only=True) as run:
        return run.history.epochs(f"candidate-{id_}")


def weights(model: nn.Module) -> list[Tensor]:
    return list(model.state_dict().values())


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def test_a_fine_tuning_that_does_harm_leaves_the_refitted_network(tmp_path: Path, untrained: Result) -> None:
    seen: list[Any] = []
    result = prune(tmp_path / "harmed", observer=seen.append, **HARMFUL)
    harmed = [one for one in result.solutions if one.refitted]
    assert harmed, "a rate of 0.7 should spoil one of the three"
    for one in harmed:
        before, *after = epochs_of(result, one.id)
        assert (before.epoch, before.train_error, before.train_loss) == (0, None, None)
        assert [row.epoch for row in after] == [1, 2]
        assert one.test_error == before.test_error
        twin = untrained.picks[one.role]
        assert twin.id == one.id
        assert same(one.model, twin.model)
        with RunFolder.open(result.run_dir, read_only=True) as run:
            error_before, error_after, images = run.history.facts()[f"solution/{one.role}"]["not_helped"]
        assert error_before < error_after
        assert images == 40
    first = [event.report.epoch for event in seen if isinstance(event, EpochDone)]
    assert first.count(0) == len({one.id for one in result.solutions})
    with RunFolder.open(result.run_dir, read_only=True) as run:
        left = {path.suffix for path in (run.path / "finetune").iterdir()}
    assert left == {".safetensors"}


def test_a_fine_tuning_that_helps_is_kept(tmp_path: Path) -> None:
    result = prune(tmp_path / "run", evaluation="recalibrate", **PLAIN, crop=0)
    helped = [one for one in result.solutions if not one.refitted]
    assert helped, "weights as cut, without a refit, should gain by two epochs"
    for one in helped:
        assert [row.epoch for row in epochs_of(result, one.id)] == [0, 1, 2]
        assert one.test_error == epochs_of(result, one.id)[-1].test_error


def test_one_that_diverges_at_every_rate_is_kept_as_refitted(tmp_path: Path, untrained: Result) -> None:
    result = prune(tmp_path / "run", **{**HARMFUL, "lr": 1e30})
    assert not result.failed
    assert all(one.refitted for one in result.solutions)
    assert same(result.knee.model, untrained.knee.model)
    assert result.knee.test_error == untrained.knee.test_error
    assert [row.epoch for row in epochs_of(result, result.knee.id)] == [0]


def task_of(finetune: dp.FinetuneConfig, images: int = 400, sample: int = 60) -> Classification:
    search = quick_guided(sample=sample)
    task = prepare(tiny_net(), digits(images)[0], search=search, finetune=finetune, measure=False).task
    assert isinstance(task, Classification)
    return task


def rows(images: Any) -> set[bytes]:
    return {image.numpy().tobytes() for image in images.images}


def test_what_is_set_aside_is_neither_trained_nor_refitted_on() -> None:
    for sample in (60, 400):  # with 400 there is nothing outside of the sample
        task = task_of(dp.FinetuneConfig(), sample=sample)
        assert task.train is not None
        assert task.validation is not None
        assert task.refitted is not None
        assert task.validation.labels.bincount().tolist() == [4] * 10
        assert (len(task.train), len(task.sample)) == (360, sample)
        assert len(task.refitted) == (60 if sample == 60 else 360)
        assert not rows(task.validation) & (rows(task.train) | rows(task.refitted))


def test_the_paper_trains_on_everything() -> None:
    for finetune in (dp.FinetuneConfig.paper(), dp.FinetuneConfig(from_scratch=True)):
        task = task_of(finetune)
        assert task.train is not None
        assert (len(task.train), task.validation, task.keeps_best) == (400, None, False)
    assert task_of(dp.FinetuneConfig(), images=100).validation is None  # 10 images would tell nothing


def test_crops_that_the_original_was_not_trained_with_are_left_out(tmp_path: Path) -> None:
    seen: list[Any] = []
    with pytest.warns(UserWarning, match="fine-tuning leaves out crop=1"):
        usual = prune(tmp_path / "usual", observer=seen.append, **PLAIN)
    without = prune(tmp_path / "without", **PLAIN, crop=0)
    assert same(usual.heavy.model, without.heavy.model)
    assert [event.about for event in seen if isinstance(event, Remark)] == ["augmentation"]
    with RunFolder.open(usual.run_dir, read_only=True) as run:
        known = run.history.facts()["augmentation"]
        table = run.config["finetune"]
    assert known["errors"]["crop=1"] > known["errors"]["plain"] + 0.05
    assert "crop" not in table  # what the run was asked for stays as it was
    with pytest.warns(UserWarning, match="crop=1 may make networks worse: --crop 0"):
        asked = prune(tmp_path / "asked", **PLAIN, crop=1)
    assert not same(asked.heavy.model, without.heavy.model)


def test_a_run_that_goes_on_decides_by_what_it_has_seen(tmp_path: Path) -> None:
    result = prune(tmp_path / "run", **PLAIN, crop=0)
    train, test = digits(400)
    with RunFolder.open(result.run_dir) as run:
        run.history.set_fact(
            "augmentation", {"images": 360, "errors": {"plain": 0.0, "crop=1": 0.9}, "note": ""}
        )
    options = dp.FinetuneConfig(**PLAIN)
    with pytest.warns(UserWarning, match=r"90.00 % with crop=1.* fine-tuning leaves out"):
        found = dp.finetune(
            result.run_dir, trained_net(), train, test, candidate=0, finetune=options, report=False
        )
    with RunFolder.open(result.run_dir, read_only=True) as run:
        assert run.history.facts()["augmentation"]["note"] == ""  # of the run's own options
    without = dp.FinetuneConfig(**PLAIN, crop=0)
    twin = dp.finetune(
        result.run_dir, trained_net(), train, test, candidate=0, finetune=without, report=False
    )
    assert same(found.model, twin.model)


class Spoils(Task):
    """Fine-tuning sets all weights to zero; whether that helped can be told, or not."""

    def __init__(self, *, tells: bool) -> None:
        self.tells = tells

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        return (seed % 1000) / 1000

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()

    def validation_error(self, model: nn.Module) -> float | None:
        return float(not any(bool(p.any()) for p in model.parameters())) if self.tells else None


@pytest.mark.parametrize("tells", [True, False])
def test_a_task_of_ones_own_has_its_say(tmp_path: Path, tells: bool) -> None:
    result = dp.prune(
        tiny_net(), run_dir=tmp_path / "run", task=Spoils(tells=tells), example_input=EXAMPLE,
        search=dp.SearchConfig.paper(offspring=3, generations=1), workers=1, report=False,
    )  # fmt: skip
    assert all(one.refitted is tells for one in result.solutions)
    assert any(bool(p.any()) for p in result.knee.model.parameters()) is tells


def test_an_original_that_guesses_is_told_of_at_once(tmp_path: Path) -> None:
    train, test = digits(200)
    seen: list[Any] = []
    with pytest.warns(UserWarning, match="no better than guessing"):
        result = dp.prune(
            tiny_net(), train, test, run_dir=tmp_path / "run", search=quick_search(generations=1),
            finetune=dp.FinetuneConfig.paper(epochs=0), workers=1, observer=seen.append,
        )  # fmt: skip
    kinds = [name for event in seen if (name := type(event).__name__) != "Stage"]
    assert kinds[:2] == ["Started", "Remark"]
    assert evaluate(tiny_net(), test).error == result.original.test_error
    assert "test images" in result.original.doubt
    page = (result.run_dir / "report.html").read_text()
    assert "none of these networks is recommended" in page
