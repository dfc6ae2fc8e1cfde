"""Networks to export or measure: those of a run folder by name, and those passed from Python."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.errors import InputError, RunError, unknown
from deeppruning.graph import ChannelGraph
from deeppruning.importing.network import OnnxNetwork
from deeppruning.jobs.identity import check_same_network
from deeppruning.jobs.result import Front, Networks, Result
from deeppruning.jobs.solution import (
    Solution,
    describe,
    load,
    original_network,
    read_image_shape,
    read_solution,
    rebuild,
)
from deeppruning.roles import NETWORKS, ORIGINAL, ROLES, candidate_number, in_order, target_number
from deeppruning.runs.facts import ORIGINAL_FIGURES, solution_fact
from deeppruning.runs.folder import FINETUNE, HISTORY, RunFolder
from deeppruning.system.commands import command
from deeppruning.system.device import precision_of
from deeppruning.training.weights import load_weights, parse_normalization

_OF_THE_DATA = ("classes", "image_shape", "normalization", "architecture", "base")  # metadata of all networks

AtHand = Result | Front | Solution | nn.Module  # what is taken in place of a run folder


def _check_example(example: Any) -> None:
    """Refuse an example input that is no batch of a single input."""
    if not isinstance(example, Tensor):
        raise InputError(
            f"example_input must be one tensor with a batch, got {type(example).__name__}: export and bench "
            "take networks with a single input"
        )
    if not example.numel():
        raise InputError(f"example_input is empty (shape {tuple(example.shape)}): give at least one input")


@dataclass(frozen=True, eq=False)
class RunNetwork:
    """A network in evaluation mode, with what is known of its inputs and costs."""

    name: str
    model: nn.Module
    metadata: Mapping[str, str]
    file: Path
    example_input: Tensor | None = None  # where the user gave one
    flops: int | None = None
    params: int | None = None
    candidate: int | None = None  # its id
    base: nn.Module | None = None  # an instance of the class that was pruned, unless the metadata name it

    def example(self, batch: int = 1) -> Tensor:
        """A batch of inputs of the right shape, all zero unless one was given."""
        if self.example_input is not None:
            _check_example(self.example_input)
            return self.example_input[:1].expand(batch, *self.example_input.shape[1:]).clone()
        if isinstance(self.model, OnnxNetwork) and "image_shape" not in self.metadata:
            own = next(iter(self.model.example_inputs().values()))
            return own[:1].expand(batch, *own.shape[1:]).clone()
        if "image_shape" not in self.metadata:
            raise InputError(
                f"{self.file} does not record the shape of its inputs (its task was your own); "
                "give one from Python: dp.export(run, example_input=x), dp.bench(run, example_input=x)"
            )
        shape = read_image_shape(self.file, self.metadata)
        return torch.zeros(batch, *shape, dtype=precision_of(self.model))

    def recorded_normalization(self) -> Normalization | None:
        """How its inputs are normalised; None if that is not recorded."""
        text = self.metadata.get("normalization")
        return None if text is None else parse_normalization(text, self.file)

    def normalization(self) -> Normalization:
        """How its inputs are normalised; an error if that is not recorded."""
        if normalization := self.recorded_normalization():
            return normalization
        raise InputError(
            f"{self.file} records no normalisation: its images were used as they are; leave out normalize"
        )

    def count_flops(self) -> int:
        """FLOPs for one input, counted if they are not known."""
        if self.flops is not None:
            return self.flops
        graph = ChannelGraph(self.model, self.example())
        flops: int = graph.flops(graph.full_genome())
        return flops


@dataclass(frozen=True)
class RunReader:
    """How the networks of a run are rebuilt.

    `model` is an instance of the original's class. Without it, a network of the zoo is rebuilt from the
    metadata, and a class of the user's own by the spec the run was started with, or by `spec` in its place:
    the run's own spec names code, which is run only if this user made the run, or with `trust_run`.
    `weights` replace the run's copy of the original's. `example_input`, a batch, is needed where a task of
    the user's own left no shape of its inputs.
    """

    model: nn.Module | None = None
    example_input: Tensor | None = None
    weights: Path | None = None
    spec: str | None = None
    trust_run: bool = False

    def network(self, run_dir: str | Path, name: str) -> RunNetwork:
        """The network of this name in a run folder."""
        if self.weights is not None and name != ORIGINAL:
            raise InputError(f"weights are given for the original only, {name} has its own in the run")
        with RunFolder.open(run_dir, read_only=True) as run:
            file = _file_of_network(run, name)
            described = file if name != ORIGINAL else run.solution(_saved_networks(run)[0])
            metadata = read_solution(described)[0]
            base = self.model if self.model is not None else self._rebuild_network(run, described, metadata)
            key = ORIGINAL_FIGURES.key if name == ORIGINAL else solution_fact(name).key
            figures: Mapping[str, Any] = run.history.facts().get(key, {})
            costs = {"flops": figures.get("flops"), "params": figures.get("params")}
            if name != ORIGINAL:
                model, id_ = load(file, base), figures.get("id")
                return RunNetwork(
                    name, model, metadata, file, self.example_input, **costs, candidate=id_,
                    base=None if "architecture" in metadata else base,
                )  # fmt: skip
            base = copy.deepcopy(base)
            load_weights(base, self.weights or file)
            check_same_network(run, base)
            about = {"role": ORIGINAL, **{key: metadata[key] for key in _OF_THE_DATA if key in metadata}}
            return RunNetwork(name, base.eval(), about, self.weights or file, self.example_input, **costs)

    def _rebuild_network(self, run: RunFolder, file: Path, metadata: Mapping[str, str]) -> nn.Module:
        table = run.config.get("model", {})
        spec = self.spec
        if "architecture" not in metadata and "spec" in table and spec is None:
            if not self.trust_run:
                run.refuse_foreign_code(["model"])
            run.open_imports()
            spec = table["spec"]
        return rebuild(file, metadata, spec, table.get("options", {}))


def read_network(run_dir: str | Path, name: str, **options: Any) -> RunNetwork:
    """The network of this name in a run folder; the options are those of `RunReader`."""
    return RunReader(**options).network(run_dir, name)


def run_of(source: str | Path | AtHand) -> Path | None:
    """The run folder that networks belong to."""
    if isinstance(source, (str, Path)):
        return Path(source)
    if isinstance(source, Result):
        return source.run_dir
    return source.path.parent if isinstance(source, Solution) and source.path is not None else None


def network_named(source: str | Path | AtHand, name: str, reader: RunReader) -> RunNetwork:
    """One network: of a run folder, a result or a front by its name, or the network itself."""
    if isinstance(source, (str, Path)):
        return reader.network(source, name)
    if isinstance(source, Networks):
        if name not in source.picks:
            raise unknown("solution", name, source.picks)
        return _network_at_hand(source.picks[name], _example_of_networks(source, reader))
    return _network_at_hand(source, reader.example_input)


def networks_side_by_side(source: str | Path | AtHand, reader: RunReader) -> dict[str, RunNetwork]:
    """The networks that are measured together, the original first."""
    if isinstance(source, Result):
        example = _example_of_networks(source, reader)
        reader = replace(reader, model=reader.model or source.network, example_input=example)
        source = source.run_dir
    if isinstance(source, (str, Path)):
        with RunFolder.open(source, read_only=True) as run:
            roles = in_order((*ROLES, *(path.stem for path in run.path.glob("target*.safetensors"))))
            failed = {role for role in roles if _failure_of_network(run, role)}
        names = (ORIGINAL, *(role for role in roles if role not in failed))
        return {name: reader.network(source, name) for name in names}
    if isinstance(source, Front):
        example = _example_of_networks(source, reader)
        networks = {each.role: _network_at_hand(each, example) for each in source.solutions}
    else:
        alone = _network_at_hand(source, reader.example_input)
        networks = {alone.name: alone}
    whole = _network_at_hand(
        _original_to_compare(source, reader.model), next(iter(networks.values())).example()
    )
    return {ORIGINAL: whole, **networks}


def _network_at_hand(source: Solution | nn.Module, example: Tensor | None) -> RunNetwork:
    """A copy of a network passed from Python, on the CPU and in evaluation mode."""
    if isinstance(source, nn.Module):
        if example is None and isinstance(source, OnnxNetwork) and len(source.input_names) == 1:
            (example,) = source.example_inputs().values()
        if example is None and not isinstance(source, OnnxNetwork):
            raise InputError("give an input of the network as example_input: a batch of one will do")
        return RunNetwork("network", copy.deepcopy(source).cpu().eval(), {}, Path("the network"), example)
    metadata: Mapping[str, str] = {}
    base = None
    if source.path is not None and source.path.is_file():
        metadata = read_solution(source.path)[0]
    elif source.search is not None:
        graph = source.search.graph
        example = _example_as_tensor(example, source.search.example_input)
        metadata = describe(source.model, graph, source.genome, role=source.role, error=source.train_error)
        if source.network is None or source.refitted:  # otherwise it was trained by its outputs
            metadata = {**metadata, "refitted": json.dumps(True)}
        base = None if "architecture" in metadata else original_network(source.search)
    return RunNetwork(
        source.role,
        copy.deepcopy(source.model).cpu().eval(),
        metadata,
        source.path or Path(source.role),
        example,
        flops=source.flops,
        params=source.params,
        candidate=source.id,
        base=base,
    )


def _example_of_networks(source: Networks, reader: RunReader) -> Tensor | None:
    return _example_as_tensor(reader.example_input, source.meter.context.example_input)


def _example_as_tensor(example: Tensor | None, of_search: Any) -> Tensor | None:
    """The example that was given, or that of the search if it is a single tensor."""
    if isinstance(of_search, (tuple, list)) and len(of_search) == 1:
        of_search = of_search[0]
    return of_search if example is None and isinstance(of_search, Tensor) else example


def _original_to_compare(source: Front | Solution | nn.Module, model: nn.Module | None) -> nn.Module:
    if model is not None:
        return model
    if isinstance(source, Front):
        return source.network
    if isinstance(source, Solution) and source.search is not None:
        return original_network(source.search)
    if isinstance(source, Solution) and source.path is not None:
        return RunReader().network(source.path.parent, ORIGINAL).model
    raise InputError("there is nothing to compare with: give the original as model")


def _file_of_network(run: RunFolder, name: str) -> Path:
    """The file of a network of a run; one that is not there is an error that says how to make it."""
    saved = _saved_networks(run)
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
    failure = _failure_of_network(run, name)
    if failure:
        raise RunError(
            f"{run.path} has no {name} network, its fine-tuning failed ({failure}); "
            f"there are: {', '.join(saved) or 'none'}"
        )
    if name in NETWORKS:
        raise RunError(
            f"{run.path} has no {name} network yet; continue it with `{command('resume', run.path)}`"
        )
    if target_number(name) is not None:
        raise RunError(
            f"{run.path} has no {name} network; "
            f"choose one: `{command('pick', run.path, '--target', 'flops=40%')}`"
        )
    raise unknown("solution", name, (ORIGINAL, *saved))


def _failure_of_network(run: RunFolder, role: str) -> str:
    """Why a pick could not be fine-tuned; empty where it could, or has not been yet."""
    if not (run.path / HISTORY).is_file():
        return ""
    figures = run.history.get_fact(solution_fact(role))
    return "" if figures is None else str(figures.get("failure", ""))


def _saved_networks(run: RunFolder) -> list[str]:
    names = sorted(path.stem for path in run.path.glob("*.safetensors") if path.is_file())
    return [*in_order(names), *(name for name in names if candidate_number(name) is not None)]
