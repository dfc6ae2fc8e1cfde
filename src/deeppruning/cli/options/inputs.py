"""What a search works on (network, weights, data, objective): loaded, written into a run, found again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from deeppruning.cli.options.data import LOADING, load_from_options
from deeppruning.cli.options.model import build_model
from deeppruning.cli.options.normalization import with_right_normalization
from deeppruning.cli.options.trust import Vouched
from deeppruning.data.registry import DATA_SETS, data_folders, data_status
from deeppruning.data.splits import DataSplits
from deeppruning.errors import RunError
from deeppruning.runs.folder import RunFolder
from deeppruning.system.device import workers_here
from deeppruning.system.user_code import load_function


@dataclass(frozen=True)
class Inputs:
    """The inputs of a search as a user names them."""

    model: str
    weights: Path | None  # None for a network that is not trained yet
    data: str
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: Path | None = None
    download: bool = False
    image_size: tuple[int, int] | None = None
    image_resize: int | None = None
    loading_workers: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    objective: str | None = None  # a function; None for an objective that has a name

    def load(self) -> "Loaded":
        """Read the data, make the network and put its weights in."""
        splits = load_from_options(self.data, **{name: getattr(self, name) for name in LOADING})
        splits, source = with_right_normalization(splits, self.weights, given=self.mean is not None)
        network = build_model(self.model, splits.train, self.weights, dict(self.model_options))
        objective = None if self.objective is None else load_function(self.objective, "objective")
        return Loaded(self._lasting(splits), network, splits, objective, source)

    def _lasting(self, splits: DataSplits) -> "Inputs":
        """The same inputs, named so that they are found from any folder, and with what was decided."""
        used = splits.train.normalization
        return replace(
            self,
            model=_lasting_spec(self.model),
            weights=self.weights and self.weights.absolute(),
            data=_lasting_data(self.data),
            data_dir=_lasting_folder(self.data, self.data_dir),
            mean=None if used is None else used.mean,
            std=None if used is None else used.std,
            objective=None if self.objective is None else _lasting_spec(self.objective),
        )

    def tables(self) -> dict[str, dict[str, Any]]:
        """The inputs as tables of a run's config.toml, which `from_run` reads back."""
        optional = {
            "data_dir": self.data_dir and str(self.data_dir),
            "image_resize": self.image_resize,
            "loading_workers": self.loading_workers,
            "mean": self.mean,
            "std": self.std,
        }
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in optional.items()}
        tables: dict[str, dict[str, Any]] = {
            "model": {"spec": self.model, "options": dict(self.model_options), "weights": str(self.weights)},
            "data": {"data": self.data, "image_size": self.image_size and list(self.image_size), **listed},
        }
        if self.objective is not None:
            tables["objective"] = {"spec": self.objective}
        if any(_is_importable(spec) for spec in (self.model, self.data, self.objective or "")):
            tables["code"] = {"folder": str(Path.cwd())}
        return tables

    @classmethod
    def from_run(cls, run: RunFolder, vouched: Vouched, weights: Path | None = None) -> "Inputs":
        """The inputs of a run, its weights taken from elsewhere if they have moved.

        Code that the run names is used only if the user made the run or vouches for it.
        """
        model, data = run.config.get("model", {}), run.config.get("data", {})
        if "spec" not in model or "data" not in data:
            raise RunError(
                f"{run.path} was started from Python, so its network and data are not written down; "
                "go on with it there: deeppruning.resume(run_dir, model, train, test), or finetune or pick"
            )
        place = weights or Path(model["weights"])
        if weights is None and not place.exists():
            raise RunError(f"the weights of {run.path} are not at {place} any more; say where with --weights")
        vouched.check(run, "model", "data", "objective")
        vouched.open_imports(run)
        return cls(
            model=vouched.model or model["spec"],
            weights=place,
            data=vouched.data or data["data"],
            model_options=model.get("options", {}),
            data_dir=Path(data["data_dir"]) if "data_dir" in data else None,
            image_size=_pair(data.get("image_size")),
            image_resize=data.get("image_resize"),
            loading_workers=workers_here(data.get("loading_workers")),
            mean=tuple(data["mean"]) if "mean" in data else None,
            std=tuple(data["std"]) if "std" in data else None,
            objective=vouched.objective or run.config.get("objective", {}).get("spec"),
        )


@dataclass(frozen=True, eq=False)
class Loaded:
    """The inputs in memory; `inputs` names them for good."""

    inputs: Inputs
    network: nn.Module
    splits: DataSplits
    objective: Callable[[nn.Module], float] | None
    normalization_source: str

    @property
    def normalization_line(self) -> str:
        """Whose normalisation the images get, and which: wrong ones lose accuracy silently."""
        used = self.splits.train.normalization
        if used is None:
            return f"normalisation: {self.normalization_source}"
        mean, std = (" ".join(f"{value:.4f}" for value in values) for values in (used.mean, used.std))
        return f"normalisation: {self.normalization_source}: mean {mean}, std {std}"


def _is_importable(spec: str) -> bool:
    source, colon, _ = spec.rpartition(":")
    return bool(colon) and not source.endswith(".py")


def _lasting_spec(spec: str) -> str:
    """A file in `file.py:name` by its full path; anything else as it is."""
    source, colon, name = spec.rpartition(":")
    return f"{Path(source).absolute()}:{name}" if colon and source.endswith(".py") else spec


def _lasting_data(spec: str) -> str:
    path = Path(spec)
    return str(path.absolute()) if spec not in DATA_SETS and path.exists() else _lasting_spec(spec)


def _lasting_folder(data: str, data_dir: Path | None) -> Path | None:
    """The data folder by its full path, also where it was found without being named."""
    if data_dir is not None or data not in DATA_SETS:
        return data_dir and data_dir.absolute()
    found = data_status(data).found
    inside = [folder for folder in data_folders() if found is not None and found.is_relative_to(folder)]
    return inside[0].absolute() if inside else None


def _pair(sides: list[int] | None) -> tuple[int, int] | None:
    return None if sides is None else (sides[0], sides[1])
