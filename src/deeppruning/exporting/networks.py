"""The networks of a run by name (the original, the picks, any fine-tuned candidate), ready to be used."""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.errors import DAMAGE, DeepPruningError, InputError, RunError, WeightsError, unknown
from deeppruning.jobs.identity import check_same_network
from deeppruning.jobs.solution import load, read_solution, rebuild
from deeppruning.models import resolve_model
from deeppruning.roles import NETWORKS, ORIGINAL, candidate_number, in_order, target_number
from deeppruning.runs.facts import solution_fact
from deeppruning.runs.folder import FINETUNE, HISTORY, RunFolder
from deeppruning.system.commands import command
from deeppruning.system.device import precision_of
from deeppruning.system.user_code import make_importable
from deeppruning.training.weights import load_weights, parse_normalization

LARGEST_IMAGE = 1 << 28  # values; a gigabyte as floats
_OF_THE_DATA = ("classes", "image_shape", "normalization", "architecture", "base")


@dataclass(frozen=True, eq=False)
class RunNetwork:
    """A network of a run in evaluation mode, with what is known of its inputs."""

    name: str
    model: nn.Module
    metadata: Mapping[str, str]
    file: Path
    example_input: Tensor | None = None  # where the user gave one

    def example(self, batch: int = 1) -> Tensor:
        """A batch of inputs of the right shape, all zero unless one was given."""
        if self.example_input is not None:
            return self.example_input[:1].expand(batch, *self.example_input.shape[1:]).clone()
        if "image_shape" not in self.metadata:
            raise InputError(
                f"{self.file} does not record the shape of its inputs (its task was your own); "
                "give one from Python: dp.export(run, example_input=x), dp.bench(run, example_input=x)"
            )
        shape = read_image_shape(self.file, self.metadata)
        return torch.zeros(batch, *shape, dtype=precision_of(self.model))

    def normalization(self) -> Normalization:
        """How its inputs are normalised."""
        if "normalization" not in self.metadata:
            raise InputError(
                f"{self.file} records no normalisation, its images came as they are; leave out --normalize"
            )
        return parse_normalization(self.metadata["normalization"], self.file)


def read_network(
    run_dir: str | Path,
    name: str,
    *,
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
    weights: Path | None = None,
    spec: str | None = None,
    trust_run: bool = False,
) -> RunNetwork:
    """The network of this name; `model` is an instance of the original's class, which stays as it is.

    Without it, a network of the zoo is rebuilt by itself and a class of the user's own by the spec the
    run was started with, or by `spec` in its place: the run's own spec names code, which is run only if
    this user made the run, or with `trust_run`. `weights` stand in for the run's copy of the original's.
    `example_input`, a batch, is needed where a task of the user's own left no shape of its inputs.
    """
    if weights is not None and name != ORIGINAL:
        raise InputError(f"weights are given for the original only, {name} has its own in the run")
    with RunFolder.open(run_dir, read_only=True) as run:
        file = _find(run, name)
        described = file if name != ORIGINAL else run.solution(_saved(run)[0])
        metadata = read_solution(described)[0]
        base = model if model is not None else _rebuild(run, described, metadata, spec, trust_run)
        if name != ORIGINAL:
            return RunNetwork(name, load(file, base), metadata, file, example_input)
        base = copy.deepcopy(base)
        load_weights(base, weights or file)
        check_same_network(run, base)
        kept = {key: metadata[key] for key in _OF_THE_DATA if key in metadata}
        about = {"role": ORIGINAL, **kept}
        return RunNetwork(name, base.eval(), about, weights or file, example_input)


def read_image_shape(file: Path, metadata: Mapping[str, str]) -> tuple[int, int, int]:
    """Channels, height and width that a solution records; no more than an image may have."""
    try:
        channels, height, width = json.loads(metadata["image_shape"])
        sides = (channels, height, width)
        if not all(type(side) is int and side > 0 for side in sides) or math.prod(sides) > LARGEST_IMAGE:
            raise ValueError(f"{sides} is no shape of images")
        return sides
    except DAMAGE as error:
        raise WeightsError(f"{file} records a shape of its inputs that cannot be used ({error})") from error


def _find(run: RunFolder, name: str) -> Path:
    saved = _saved(run)
    if name in saved:
        return run.solution(name)
    if name == ORIGINAL and saved:
        return run.path / FINETUNE / f"{ORIGINAL}.safetensors"
    number = candidate_number(name)
    if number is not None:
        raise InputError(
            f"{name} of {run.path} is not fine-tuned yet; "
            f"do that with `{command('finetune', run.path, '--candidate', number)}`"
        )
    failure = failure_of(run.path, name)
    if failure:
        raise RunError(
            f"{run.path} has no {name} network, its fine-tuning failed ({failure}); "
            f"there are: {', '.join(saved) or 'none'}"
        )
    if name in NETWORKS:
        raise RunError(
            f"{run.path} has not saved its {name} network yet; go on with `{command('resume', run.path)}`"
        )
    if target_number(name) is not None:
        raise RunError(
            f"{run.path} has no {name} network; "
            f"choose one: `{command('pick', run.path, '--target', 'flops=40%')}`"
        )
    raise unknown("solution", name, (ORIGINAL, *saved))


def failure_of(run_dir: str | Path, role: str) -> str:
    """Why a pick of a run could not be fine-tuned; empty where it could, or has not been yet."""
    with RunFolder.open(run_dir, read_only=True) as run:
        if not (run.path / HISTORY).is_file():
            return ""
        figures = run.history.get_fact(solution_fact(role))
        return "" if figures is None else str(figures.get("failure", ""))


def _saved(run: RunFolder) -> list[str]:
    names = sorted(path.stem for path in run.path.glob("*.safetensors") if path.is_file())
    return [*in_order(names), *(name for name in names if candidate_number(name) is not None)]


def _rebuild(
    run: RunFolder, file: Path, metadata: Mapping[str, str], spec: str | None, trust_run: bool
) -> nn.Module:
    """An instance of the original's class; its weights do not matter."""
    try:
        if "architecture" in metadata:
            return rebuild(file, metadata)
        described = run.config.get("model", {})
        if "spec" in described and "image_shape" in metadata:
            channels, height, width = read_image_shape(file, metadata)
            if spec is None and not trust_run:
                run.refuse_foreign_code(["model"])
            if spec is None and "code" in run.config:
                make_importable(Path(run.config["code"]["folder"]))
            return resolve_model(
                spec or described["spec"],
                num_classes=len(json.loads(metadata["classes"])),
                in_channels=channels,
                image_size=min(height, width),
                **described.get("options", {}),
            )
    except DAMAGE as error:
        if isinstance(error, DeepPruningError):
            raise
        raise WeightsError(f"{file}: its architecture cannot be rebuilt ({error})") from error
    raise RunError(
        f"{run.path} was started from Python with a network that is not in the zoo; go on there, "
        "with an instance of its class: dp.export(run, model), dp.bench(run, model)"
    )
