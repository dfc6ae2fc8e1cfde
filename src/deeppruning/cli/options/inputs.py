"""The inputs of a command (network, weights, data, objective): flags, loading, and finding them again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from torch import nn

from deeppruning.cli.options.flags import flag, given_options, option_flags
from deeppruning.cli.options.run import Vouched
from deeppruning.data.images import Normalization
from deeppruning.data.registry import DATA_SETS, DataSource, data_folders, data_status, load_data
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import Images
from deeppruning.errors import InputError, RunError, WeightsError
from deeppruning.importing.resolve import is_onnx, resolve_network
from deeppruning.models.libraries import is_library_name
from deeppruning.options import NETWORK
from deeppruning.runs import RunFolder
from deeppruning.system.device import workers_here
from deeppruning.system.user_code import load_function
from deeppruning.training.weights import load_weights, normalization_for

OptionValue = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class DataOptions(DataSource):
    """The data as a user names it on the command line."""

    @classmethod
    def given(cls, settings: Mapping[str, Any]) -> "DataOptions":
        """The options in a command's settings."""
        return cls(**given_options(cls, settings))

    def load(self) -> DataSplits:
        """Load the data, normalised by `mean` and `std`; downloads are announced on stderr.

        Data without a test set is always split in the same way, whatever the command's seed: a network
        trained with one seed must not be tested on its training images with another.
        """
        splits = load_data(
            self.data,
            data_dir=self.data_dir,
            download=self.download,
            image_size=self.image_size,
            image_resize=self.image_resize,
            loading_workers=self.loading_workers,
            say=lambda message: click.echo(message, err=True),
        )
        if self.mean is None or self.std is None:
            return splits
        return splits.with_normalization(Normalization(self.mean, self.std))

    def load_for(self, weights: Path | None) -> tuple[DataSplits, str]:
        """Load the data, normalised as the network with these weights expects; and where that comes from.

        Weights trained with one normalisation and used with another lose accuracy silently, so it is printed.
        """
        splits = self.load()
        if self.mean is not None:
            return splits, "given by --mean and --std"
        stored = weights is not None and not is_onnx(weights)
        recorded = normalization_for(weights) if weights is not None and stored else None
        if recorded is None:
            own = "of the data set" if splits.test.normalization is not None else "none"
            return splits, own if weights is None else f"{own} (the weights file records none)"
        channels = splits.test.image_shape[0]
        if len(recorded.mean) != channels:
            raise WeightsError(
                f"{weights} was trained on images of {len(recorded.mean)} channels, the data has {channels}; "
                "use data of the same kind, or give --mean and --std"
            )
        return splits.with_normalization(recorded), "recorded with the weights"

    def lasting(self, used: Normalization | None) -> "DataOptions":
        """The same data with absolute paths and the normalisation that is used."""
        path = Path(self.data)
        is_path = self.data not in DATA_SETS and path.exists()
        return replace(
            self,
            data=str(path.absolute()) if is_path else lasting_spec(self.data),
            data_dir=self._data_folder(),
            download=False,
            mean=None if used is None else used.mean,
            std=None if used is None else used.std,
        )

    def _data_folder(self) -> Path | None:
        """The absolute data folder, also where the data set was found in a default one."""
        if self.data_dir is not None or self.data not in DATA_SETS:
            return self.data_dir and self.data_dir.absolute()
        path = data_status(self.data).path
        inside = [folder for folder in data_folders() if path and path.is_relative_to(folder)]
        return inside[0].absolute() if inside else None

    def to_table(self) -> dict[str, Any]:
        """The [data] table of a run's config.toml, which `from_table` reads back."""
        texts = {"data_dir": self.data_dir and str(self.data_dir), "download": None}
        table = {key: texts.get(key, value) for key, value in super().to_table().items()}
        lists = {key: list(value) if isinstance(value, tuple) else value for key, value in table.items()}
        return {key: value for key, value in lists.items() if value is not None}


data_options = option_flags(DataOptions)


def normalization_line(source: str, used: Normalization | None) -> str:
    """Where the normalisation of the images comes from, and its numbers."""
    if used is None:
        return f"normalisation: {source}"
    mean, std = (" ".join(f"{value:.4f}" for value in values) for values in (used.mean, used.std))
    return f"normalisation: {source}: mean {mean}, std {std}"


def parse_model_options(pairs: tuple[str, ...]) -> dict[str, OptionValue]:
    """KEY=VALUE texts as a table, with numbers and true/false converted.

    >>> parse_model_options(("shortcut=conv", "dropout=0.5", "wide=true"))
    {'shortcut': 'conv', 'dropout': 0.5, 'wide': True}
    """
    options: dict[str, OptionValue] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"--model-option takes KEY=VALUE, for example shortcut=conv, got {pair!r}")
        if key in options:
            raise InputError(f"--model-option {key} is given twice; leave one out")
        options[key] = _parse_option_value(value)
    return options


def _parse_option_value(text: str) -> OptionValue:
    """true, false, a number, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


model_option = flag(
    "--model-option",
    "model_options",
    heading=NETWORK,
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda context, parameter, pairs: parse_model_options(pairs),
    help="Option of the network, for example shortcut=conv; may be repeated.",
)


def build_model(
    spec: str, data: Images, weights: Path | None = None, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """The network that `spec` names, for the classes and shape of these images, with the weights loaded."""
    channels, height, width = data.image_shape
    model = resolve_network(
        spec,
        num_classes=data.num_classes,
        in_channels=channels,
        image_size=min(height, width),
        **(options or {}),
    )
    if is_onnx(spec) and weights is not None and not is_onnx(weights):
        raise InputError(f"{spec} has its own weights; leave out --weights {weights}")
    note = load_weights(model, weights) if weights is not None and not is_onnx(weights) else ""
    if note:
        click.echo(f"note: {note}", err=True)
    return model


@dataclass(frozen=True)
class Inputs:
    """The inputs of a search as a user names them."""

    model: str
    weights: Path | None  # None for a network that is not trained yet
    data: DataOptions = field(default_factory=DataOptions)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    objective: str | None = None  # a function; None for an objective that has a name

    def load(self) -> "Loaded":
        """Read the data, build the network and load its weights."""
        splits, source = self.data.load_for(self.weights)
        network = build_model(self.model, splits.train, self.weights, self.model_options)
        objective = None if self.objective is None else load_function(self.objective, "objective")
        lasting = replace(
            self,
            model=lasting_spec(self.model),
            weights=self.weights and self.weights.absolute(),
            data=self.data.lasting(splits.train.normalization),
            objective=self.objective and lasting_spec(self.objective),
        )
        return Loaded(lasting, network, splits, objective, source)

    def tables(self) -> dict[str, dict[str, Any]]:
        """The inputs as tables of a run's config.toml, which `from_run` reads back."""
        tables: dict[str, dict[str, Any]] = {
            "model": {"spec": self.model, "options": dict(self.model_options), "weights": str(self.weights)},
            "data": self.data.to_table(),
        }
        if self.objective is not None:
            tables["objective"] = {"spec": self.objective}
        if any(_names_module(spec) for spec in (self.model, self.data.data, self.objective or "")):
            tables["code"] = {"folder": str(Path.cwd())}
        return tables

    @classmethod
    def from_run(cls, run: RunFolder, vouched: Vouched, weights: Path | None = None) -> "Inputs":
        """The inputs of a run, with weights from another place if they have moved.

        Code that the run names is used only if the user made the run or vouches for it.
        """
        model, data = run.config.get("model", {}), dict(run.config.get("data", {}))
        if "thin" in run.config:
            raise RunError(
                f"{run.path} was made by `deeppruning thin`, which needs no labels and trains nothing; the "
                "same command continues it, and with another --target takes another network from it"
            )
        if "spec" not in model or "data" not in data:
            raise RunError(
                f"{run.path} was started from Python, so its network and data are not recorded; "
                "continue it there: deeppruning.resume(run_dir, model, train, test), or finetune or pick"
            )
        place = weights or Path(model["weights"])
        if weights is None and not place.exists():
            raise RunError(f"the weights of {run.path} are no longer at {place}; say where with --weights")
        vouched.check(run, "model", "data", "objective")
        run.open_imports()
        if "data_dir" in data:
            data["data_dir"] = Path(data["data_dir"])
        data["data"] = vouched.data or data["data"]
        data["loading_workers"] = workers_here(data.get("loading_workers"))
        return cls(
            model=vouched.model or (str(weights) if weights and is_onnx(weights) else model["spec"]),
            weights=place,
            data=DataOptions.from_table(data),
            model_options=model.get("options", {}),
            objective=vouched.objective or run.config.get("objective", {}).get("spec"),
        )


@dataclass(frozen=True, eq=False)
class Loaded:
    """The inputs in memory; `inputs` names them by absolute paths."""

    inputs: Inputs
    network: nn.Module
    splits: DataSplits
    objective: Callable[[nn.Module], float] | None
    normalization_source: str

    @property
    def model_and_data(self) -> tuple[nn.Module, Images, Images]:
        """The network, the training and the test images: the first arguments of most calls."""
        return self.network, self.splits.train, self.splits.test

    @property
    def normalization_line(self) -> str:
        """Where the normalisation comes from, and its numbers."""
        return normalization_line(self.normalization_source, self.splits.train.normalization)


def _names_module(spec: str) -> bool:
    """Whether a model or data is named as package.module:name."""
    source, colon, _ = spec.rpartition(":")
    return bool(colon) and not source.endswith(".py") and not is_library_name(spec)


def lasting_spec(spec: str) -> str:
    """`file.py:name` or `file.onnx` with the file's absolute path; anything else unchanged."""
    if is_onnx(spec):
        return str(Path(spec).absolute())
    source, colon, name = spec.rpartition(":")
    return f"{Path(source).absolute()}:{name}" if colon and source.endswith(".py") else spec
