"""What a tracker is told: the same for every kind, each value once, whatever happens to the run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import deeppruning as dp
from cli_search import guided_arguments, trained
from deeppruning.cli.main import cli
from deeppruning.errors import InputError, RunError
from deeppruning.runs import RunFolder, facts
from deeppruning.tracking import TRACKERS, TrackedRun, Tracker, Tracking, register_tracker
from search_helpers import digits, quick_guided, tiny_net
from tracked_runs import Stop, pruned, stop_after, stopped_and_resumed


class Listed(Tracker):
    """Keeps in lists what it is told."""

    name = "listed"
    told: list[tuple[Any, ...]] = []  # noqa: RUF012

    def open(self, run: TrackedRun) -> Mapping[str, str]:
        self.told.append(("open", run.name, dict(run.kept)))
        return {"id": "7"}

    def options(self, values: Mapping[str, Any]) -> None:
        self.told.append(("options", dict(values)))

    def metrics(self, values: Mapping[str, float], step: int, axis: str) -> None:
        self.told.append(("metrics", axis, step, dict(values)))

    def image(self, name: str, png: bytes, step: int) -> None:
        self.told.append(("image", name, step, png[1:4]))

    def summary(self, values: Mapping[str, float], text: str) -> None:
        self.told.append(("summary", dict(values), text))

    def files(self, paths: Mapping[str, Path]) -> None:
        self.told.append(("files", dict(paths)))

    def close(self, status: str) -> None:
        self.told.append(("close", status))


@pytest.fixture
def listed() -> Iterator[list[tuple[Any, ...]]]:
    register_tracker(Listed)
    Listed.told = []
    yield Listed.told
    TRACKERS.remove("listed")


def of(told: list[tuple[Any, ...]], kind: str) -> list[tuple[Any, ...]]:
    return [entry[1:] for entry in told if entry[0] == kind]


def steps(told: list[tuple[Any, ...]], axis: str, name: str) -> list[int]:
    return [step for own, step, values in of(told, "metrics") if own == axis and name in values]


def test_a_run_is_recorded(tmp_path: Path, listed: list[tuple[Any, ...]]) -> None:
    result = pruned(tmp_path / "run", "listed")
    assert listed[0] == ("open", "run", {}) and listed[-1] == ("close", "finished")
    (options,) = of(listed, "options")[0]
    assert options["search.offspring"] == 4 and options["finetune.epochs"] == 2
    assert options["environment.deeppruning"] == dp.__version__ and "environment.torch" in options
    assert steps(listed, "generation", "search/hypervolume") == [1, 2, 3]
    volumes = [
        values["search/hypervolume"] for axis, _, values in of(listed, "metrics") if axis == "generation"
    ]
    assert volumes == sorted(volumes) and 0.0 < volumes[-1] < 1.0
    last = next(values for axis, step, values in of(listed, "metrics") if (axis, step) == ("generation", 3))
    full = result.original.flops
    for percent in (50, 80):
        errors = [one.train_error for one in result.candidates if one.flops <= percent / 100 * full]
        assert last[f"search/best_error/flops_{percent}_percent"] == min(errors)
    values, text = of(listed, "summary")[0]
    assert values["knee/test_error"] == result.knee.test_error
    assert values["knee/params"] == result.knee.params and "| knee |" in text
    (files,) = of(listed, "files")[0]
    assert {"config.toml", "report.html", "knee.safetensors"} <= set(files)
    assert all(path.is_file() for path in files.values())


def test_the_curves_of_fine_tuning_begin_before_training(
    tmp_path: Path, listed: list[tuple[Any, ...]]
) -> None:
    result = pruned(tmp_path / "run", [Listed()])
    ids = {solution.id for solution in result.solutions}
    roles = [next(role for role, one in result.picks.items() if one.id == id_) for id_ in ids]
    for role in roles:
        assert steps(listed, "epoch", f"finetune/{role}/test_error") == [0, 1, 2]
        assert steps(listed, "epoch", f"finetune/{role}/train_loss") == [1, 2]


def test_a_resumed_run_continues_its_record_and_repeats_nothing(
    tmp_path: Path, listed: list[tuple[Any, ...]]
) -> None:
    stopped_and_resumed(tmp_path / "run", "listed")
    assert of(listed, "open") == [("run", {}), ("run", {"id": "7"})]
    assert of(listed, "close") == [("stopped",), ("finished",)]
    assert len(of(listed, "options")) == 1
    assert steps(listed, "generation", "search/hypervolume") == [1, 2, 3]
    assert [step for _, step, _ in of(listed, "image")] == [1, 2, 3]
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        notes = run.history.get_fact(facts.TRACKERS)["listed"]
    assert notes["kept"] == {"id": "7"} and notes["generation"] == 3 and notes["finished"]


@pytest.mark.slow
def test_epochs_are_not_repeated_either(tmp_path: Path, listed: list[tuple[Any, ...]]) -> None:
    with pytest.raises(Stop):
        pruned(tmp_path / "run", "listed", observer=stop_after(epoch=1))
    train, test = digits(60, 40)
    result = dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1, device="cpu")
    counted = [
        (name, step) for _, step, values in of(listed, "metrics") for name in values if name.endswith("/lr")
    ]
    assert len(counted) == len(set(counted))
    assert f"finetune/{next(iter(result.picks))}/lr" in dict(counted)


@pytest.mark.slow
def test_a_resumed_run_can_leave_its_trackers(tmp_path: Path, listed: list[tuple[Any, ...]]) -> None:
    with pytest.raises(Stop):
        pruned(tmp_path / "run", "listed", observer=stop_after(generation=1))
    train, test = digits(60, 40)
    dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1, device="cpu", track=())
    assert len(of(listed, "open")) == 1


def test_a_tracker_that_fails_does_not_stop_the_run(
    tmp_path: Path, listed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the server is gone")

    monkeypatch.setattr(Listed, "metrics", fail)
    with pytest.warns(UserWarning, match="listed failed, and the run goes on without it: the server is gone"):
        result = pruned(tmp_path / "run", "listed")
    assert result.knee.path.is_file() and of(listed, "summary") == []


def test_a_tracker_that_cannot_be_opened_is_an_error(
    tmp_path: Path, listed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such server")

    monkeypatch.setattr(Listed, "open", fail)
    with pytest.raises(RunError, match="the tracker listed cannot be opened: no such server"):
        pruned(tmp_path / "run", "listed")


def test_a_search_without_a_folder_is_recorded(listed: list[tuple[Any, ...]]) -> None:
    train, _ = digits(60, 40)
    inputs = train.images[:40].float().view(40, 1, 8, 8) / 16
    dp.search(tiny_net(), inputs, search=quick_guided(generations=2), workers=1, device="cpu", track="listed")
    assert steps(listed, "generation", "search/hypervolume") == [1, 2]
    assert listed[-1] == ("close", "finished")


@pytest.mark.parametrize(
    ("track", "message"),
    [
        ("tensorbord", "unknown tracker 'tensorbord'.*tensorboard"),
        (3, "track takes names of trackers"),
        (["listed", "listed"], "listed is given twice"),
    ],
)
def test_what_is_not_a_tracker_is_refused(track: Any, message: str, listed: list[tuple[Any, ...]]) -> None:
    with pytest.raises(InputError, match=message):
        Tracking(track)


def test_a_missing_package_is_named_with_its_extra_before_any_work(tmp_path: Path) -> None:
    class Absent(Listed):
        name = "mlflow"
        needs = "mlflow_that_is_not_installed"

    with pytest.raises(
        InputError, match=r"needs the package .* the extra deeppruning-es\[mlflow\]: .* install"
    ):
        pruned(tmp_path / "run", Absent())
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_line_records_latencies_too(tmp_path: Path, listed: list[tuple[Any, ...]]) -> None:
    spec, weights = trained(tmp_path)
    done = CliRunner().invoke(
        cli, ["prune", *guided_arguments(spec, weights, tmp_path / "run"), "--track", "listed"]
    )
    assert done.exit_code == 0, done.output
    values, _ = of(listed, "summary")[0]
    assert values["knee/latency_seconds"] > 0.0
    assert listed[-1] == ("close", "finished")
