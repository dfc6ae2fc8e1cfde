"""MLflow: one run of an experiment, in the store that MLflow is configured for, by default a local one."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from deeppruning.errors import RunError
from deeppruning.tracking.tracker import TrackedRun, Tracker, Value, register_tracker

EXPERIMENT = "deeppruning"
_LONGEST = 500  # characters of a value, in every store
_TRAINING = {"mlflow.experimentKind": "custom_model_development"}  # the pages show metrics, not traces
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


@register_tracker
class MLflow(Tracker):
    """Writes into `experiment`: by default that of MLFLOW_EXPERIMENT_NAME, else "deeppruning".

    The store is that of MLFLOW_TRACKING_URI or `mlflow.set_tracking_uri`, else the local one of this folder.
    """

    name = "mlflow"
    needs = "mlflow"

    def __init__(self, experiment: str | None = None) -> None:
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        self._client: Any = None
        self._run = ""

    def check(self) -> None:
        """MLflow reports its own use to its makers unless it is told not to."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        super().check()

    def open(self, run: TrackedRun) -> Mapping[str, str]:
        """Begin a run, or continue the one of this id."""
        mlflow = self.package()
        self._client = mlflow.MlflowClient()
        try:
            if "run_id" in run.kept:
                self._run = self._client.get_run(run.kept["run_id"]).info.run_id
                self._client.update_run(self._run, status="RUNNING")
                return run.kept
            experiment = self._client.get_experiment_by_name(self.experiment)
            id_ = (
                experiment.experiment_id
                if experiment
                else self._client.create_experiment(self.experiment, tags=_TRAINING)
            )
            self._run = self._client.create_run(id_, run_name=run.name).info.run_id
        except mlflow.exceptions.MlflowException as error:
            raise RunError(
                f"MLflow's store {mlflow.get_tracking_uri()} refuses the record ({error}); set "
                "MLFLOW_TRACKING_URI to the store of the run, or start from the folder it was started in"
            ) from error
        return {"run_id": self._run}

    def options(self, values: Mapping[str, Value]) -> None:
        """Parameters of the run."""
        for name, value in values.items():
            self._client.log_param(self._run, name, str(value)[:_LONGEST])

    def metrics(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Metrics of the run."""
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def image(self, name: str, png: bytes, step: int) -> None:
        """A picture that the page of the run shows step by step."""
        self._client.log_image(self._run, Image.open(io.BytesIO(png)), key=name, step=step)

    def summary(self, values: Mapping[str, float], text: str) -> None:
        """Metrics without steps, and the description of the run."""
        self.metrics({f"summary/{name}": value for name, value in values.items()}, 0, "")
        self._client.set_tag(self._run, "mlflow.note.content", text)

    def files(self, paths: Mapping[str, Path]) -> None:
        """Artefacts of the run."""
        for name, path in paths.items():
            folder = str(Path(name).parent)
            self._client.log_artifact(self._run, str(path), None if folder == "." else folder)

    def close(self, status: str) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self._run, _STATUS[status])
