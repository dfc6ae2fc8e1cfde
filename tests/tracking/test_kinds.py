"""The trackers with their real packages: what was recorded is read back by the package's own reader."""

import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tracked_runs import pruned, stopped_and_resumed


def needs(package: str) -> Any:
    reason = f"{package} is not installed (the extra {package}; `make test-all` installs it)"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


def tensorboard_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    accumulator.Reload()
    return accumulator


@needs("tensorboard")
def test_tensorboard_reads_a_resumed_run_as_one(tmp_path: Path) -> None:
    result = stopped_and_resumed(tmp_path / "run", "tensorboard")
    events = tensorboard_events(tmp_path / "run" / "tensorboard")
    assert [event.step for event in events.Scalars("search/hypervolume")] == [1, 2, 3]
    assert events.Scalars("summary/knee/test_error")[0].value == pytest.approx(result.knee.test_error)
    assert len(events.Images("front")) == 3
    assert {"options/text_summary", "result/text_summary"} <= set(events.Tags()["tensors"])
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2  # a file for each sitting


@pytest.mark.slow
@needs("mlflow")
def test_mlflow_holds_a_resumed_run_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/store.db")
    result = stopped_and_resumed(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("deeppruning")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.params["search.offspring"] == "4"
    assert run.data.metrics["summary/knee/test_error"] == pytest.approx(result.knee.test_error)
    history = client.get_metric_history(run.info.run_id, "search/hypervolume")
    assert [entry.step for entry in history] == [1, 2, 3]
    names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert {"knee.safetensors", "report.html", "config.toml"} <= names
    assert "| knee |" in run.data.tags["mlflow.note.content"]


@pytest.mark.slow
@needs("mlflow")
def test_a_record_that_mlflow_does_not_have_is_an_error(tmp_path: Path) -> None:
    import mlflow

    from deeppruning.errors import RunError
    from deeppruning.tracking import TRACKERS, TrackedRun

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(RunError, match="set MLFLOW_TRACKING_URI to the store of the run"):
        TRACKERS["mlflow"].make().open(TrackedRun("run", tmp_path, {"run_id": "0" * 32}))


@pytest.mark.slow
@needs("wandb")
def test_wandb_is_offline_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    result = stopped_and_resumed(tmp_path / "run", "wandb")
    first, second = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert first.name.rpartition("-")[2] == second.name.rpartition("-")[2]  # one id
    records = [record for folder in (first, second) for record in wandb_records(folder)]
    history = [row for kind, row in records if kind == "history" and "search/hypervolume" in row]
    assert [row["generation"] for row in history] == ["1", "2", "3"]
    final = next(row for _, row in records if "summary/knee/test_error" in row)
    assert float(final["summary/knee/test_error"]) == pytest.approx(result.knee.test_error)


def wandb_records(folder: Path) -> list[tuple[str, dict[str, str]]]:
    """The history and summary rows of an offline run, read with wandb's own messages."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("*.wandb")
    rows = []
    for data in logged(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        items = {"history": record.history.item, "summary": record.summary.update}.get(kind, ())
        rows.append((kind, {item.key or "/".join(item.nested_key): item.value_json for item in items}))
    return rows


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, which wandb writes; some lie in several parts."""
    place, whole, block = 7, b"", 32768
    while place + 7 <= len(content):
        left = block - place % block
        if left < 7:
            place += left
            continue
        size, part = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4):  # the whole record, or its last part
            yield whole
            whole = b""


@needs("tensorboard")
def test_tensorboard_writes_into_a_folder_of_your_choice(tmp_path: Path) -> None:
    from deeppruning.tracking.kinds.tensorboard import TensorBoard

    pruned(tmp_path / "run", [TensorBoard(tmp_path / "elsewhere")])
    events = tensorboard_events(tmp_path / "elsewhere")
    assert [event.step for event in events.Scalars("search/evaluated")] == [1, 2, 3]
