"""A solution, and its file: the only place that writes, reads and rebuilds thin networks.

The file is safetensors: the thin weights, and in the metadata all that a reader needs. The cut is written
in plain numbers, so a file is read without building the channel graph, and contains no code that could run.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from deeppruning.amounts import percent
from deeppruning.errors import DAMAGE, DeepPruningError, InputError, WeightsError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.importing.onnx import from_onnx
from deeppruning.importing.resolve import is_onnx, resolve_network
from deeppruning.models.registry import architecture_of, create_bounded_model
from deeppruning.roles import candidate_name
from deeppruning.runs import Candidate
from deeppruning.runs.facts import SolutionFigures
from deeppruning.searching.candidate import Context, refit_if_asked
from deeppruning.training.finite import check_learnt
from deeppruning.training.tensors import read_tensors, write_tensors
from deeppruning.training.weights import check_given

_FAMILY = "deeppruning-solution/"
FORMAT = f"{_FAMILY}1"  # another number for a file that this version would misread
LARGEST_IMAGE = 1 << 28  # values; a gigabyte as floats
HUB_WEIGHTS = "model.safetensors"  # in a folder that is exported for a hub
CANDIDATE_MARK = "_deeppruning_candidate"  # attribute of a network: the id of its candidate


@dataclass(frozen=True, eq=False)
class Solution:
    """A thin network and its costs.

    Solutions of a run are fine-tuned and saved. Others (from `dp.search`, or `best` of a result) are
    refitted but not trained: they have neither `test_error` nor `path`, and `model` is made on first use.
    """

    role: str  # such as knee or target, or the name of the candidate: "candidate-57"
    id: int  # of the candidate
    genome: Genome
    train_error: float  # in the search; without labels, how far the outputs drift from the original's
    test_error: float | None  # after fine-tuning
    flops: int  # multiply-adds for one input
    flops_pruned: float  # share of the original's FLOPs that was removed, 0..1
    params: int
    path: Path | None = None  # None for a network that is not saved
    refitted: bool = False  # fine-tuning did not help, so these are the weights from before it
    lr_factor: float = 1.0  # below 1 where fine-tuning diverged and was repeated at a lower learning rate
    network: nn.Module | None = None
    search: Context | None = None  # the search that an unsaved solution comes from

    @classmethod
    def of_candidate(cls, candidate: Candidate, search: Context, role: str = "") -> "Solution":
        """A candidate of a search, refitted but not trained."""
        assert candidate.train_error is not None
        whole = search.graph.flops(search.graph.full_genome())
        return cls(
            role=role or candidate_name(candidate.id),
            id=candidate.id,
            genome=candidate.genome,
            train_error=candidate.train_error,
            test_error=None,
            flops=candidate.flops,
            flops_pruned=1.0 - candidate.flops / whole,
            params=candidate.params,
            search=search,
        )

    @classmethod
    def of_run(
        cls, role: str, candidate: Candidate, figures: SolutionFigures, path: Path, network: nn.Module
    ) -> "Solution":
        """A candidate that a run has fine-tuned and saved, with the figures that it recorded."""
        assert candidate.train_error is not None  # without one it is neither picked nor fine-tuned
        return cls(
            role=role,
            id=candidate.id,
            genome=candidate.genome,
            train_error=candidate.train_error,
            test_error=figures.get("test_error"),
            flops=figures["flops"],
            flops_pruned=figures["flops_pruned"],
            params=figures["params"],
            path=path,
            refitted="not_helped" in figures,
            lr_factor=figures.get("lr_factor", 1.0),
            network=network,
        )

    @cached_property
    def model(self) -> nn.Module:
        """The thin network, in evaluation mode."""
        if self.network is not None:
            return self.network
        assert self.search is not None
        thin = self.search.graph.prune(self.genome)
        refit_if_asked(self.search, self.genome, thin, final=True)
        setattr(thin, CANDIDATE_MARK, self.id)  # copied with the network, and not one of its weights
        return thin.eval()

    @property
    def recipe(self) -> Recipe:
        """The cut that made it from the original, in plain numbers."""
        if self.search is not None:
            return self.search.graph.recipe(self.genome)
        assert self.path is not None
        return Recipe.from_json(read_solution(self.path)[0]["cut"])

    def __repr__(self) -> str:  # without the network itself, which would fill pages
        error = "" if self.test_error is None else f", test error {self.test_error:.4g}"
        cost = f"{self.flops:,} FLOPs (-{percent(self.flops_pruned, 1)}), {self.params:,} parameters"
        place = "not saved" if self.path is None else repr(str(self.path))
        return f"Solution({self.role}, candidate {self.id}{error}, {cost}, {place})"


def save(
    model: nn.Module,
    path: str | Path,
    graph: ChannelGraph,
    genome: Genome,
    *,
    role: str = "thin",
    error: float | None = None,
    test_error: float | None = None,
    description: Mapping[str, str] | None = None,
) -> Path:
    """Save a thin network, cut by `graph` according to `genome` and trained since, for `dp.load`.

    `model` may be wrapped in another module: DataParallel, torch.compile, a Lightning module. The file
    holds the weights, the cut in plain numbers, the costs and, if given, the errors in the search and on
    test data. `description` is further text for its metadata. Equal networks give equal bytes, and the file
    is written completely or not at all. Raises `Diverged` for weights that are not finite.

    For example: `dp.save(thin, "thin.safetensors", graph, genome)`.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"a network is saved as safetensors: name it {path.stem}.safetensors")
    genome = np.asarray(genome, np.bool_)
    thin = _network_inside(model, _parameter_shapes(graph.prune(genome)))
    check_learnt(thin, f"the {role} network")
    metadata = describe(thin, graph, genome, role=role, error=error, test_error=test_error)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, thin.state_dict(), {**metadata, **(description or {})})
    return path


def describe(
    thin: nn.Module,
    graph: ChannelGraph,
    genome: Genome,
    *,
    role: str,
    error: float | None = None,
    test_error: float | None = None,
) -> dict[str, str]:
    """The metadata of a thin network: all that a reader of its weights needs."""
    architecture = architecture_of(thin)
    return {
        "format": FORMAT,
        "cut": graph.recipe(genome).to_json(),
        "flops": str(graph.flops(genome)),
        "params": str(graph.params(genome)),
        "train_error": json.dumps(error),
        "test_error": json.dumps(test_error),
        "role": role,
        **({} if architecture is None else {"architecture": json.dumps(architecture, sort_keys=True)}),
    }


def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """A saved solution as a thin network in evaluation mode: a file, or a folder of `export --format hub`.

    A network of the zoo is rebuilt automatically; for your own class pass an instance of the original. Its
    weights do not matter, and it is not changed.

    For example: `dp.load("runs/mine/knee.safetensors", MyNet())`.
    """
    if model is not None and not isinstance(model, nn.Module):
        raise InputError(
            f"model must be an instance of the original's class, got {type(model).__name__}; "
            'write dp.load("knee.safetensors", MyNet())'
        )
    path = Path(path)
    if (path / HUB_WEIGHTS).is_file():
        path /= HUB_WEIGHTS
    metadata, weights = read_solution(path)
    thin = _cut_as_recorded(path, model if model is not None else rebuild(path, metadata), metadata["cut"])
    expected, saved = _parameter_shapes(thin), {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != saved:
        name = _first_other_shape(expected, saved)
        raise WeightsError(
            f"{path} does not belong to this network: {name} is {saved.get(name, 'absent')} in the file and "
            f"{expected.get(name, 'absent')} in the network; give the class it was pruned from"
        )
    check_given(path, thin, weights)
    try:
        thin.load_state_dict(weights)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(f"{path} holds weights that its network cannot take ({error})") from error
    return thin.eval()


def read_solution(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and weights of a saved solution; any other file is refused."""
    if not path.is_file():
        raise WeightsError(
            f"{path} is not a file; give a solution of a run, for example runs/mine/knee.safetensors"
        )
    weights, metadata = read_tensors(path)
    kind = metadata.get("format", "")
    if kind.startswith(_FAMILY) and kind != FORMAT:
        raise WeightsError(
            f"{path} has format {kind!r}, but this version reads {FORMAT!r}: load it with the version of "
            "deeppruning that wrote it"
        )
    if kind != FORMAT or "cut" not in metadata:
        what = f"has format {kind!r}" if kind else "records no cut"
        raise WeightsError(f"{path} {what}: it is not a solution saved by a run that this version reads")
    return metadata, weights


def read_image_shape(file: Path, metadata: Mapping[str, str]) -> tuple[int, int, int]:
    """Channels, height and width that a solution records, bounded by what an image can have."""
    try:
        channels, height, width = json.loads(metadata["image_shape"])
        sides = (channels, height, width)
        if not all(type(side) is int and side > 0 for side in sides) or math.prod(sides) > LARGEST_IMAGE:
            raise ValueError(f"{sides} is not the shape of an image")
        return sides
    except DAMAGE as error:
        raise WeightsError(f"{file} records an input shape that cannot be used ({error})") from error


def rebuild(
    path: Path,
    metadata: Mapping[str, str],
    spec: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """An instance of the class that a solution was pruned from; its weights do not matter.

    A network of the zoo by the metadata, any other by `spec` ("file.py:factory") and its options.
    """
    try:
        if "architecture" in metadata:
            table: dict[str, Any] = json.loads(metadata["architecture"])
            return create_bounded_model(table.pop("name"), **table)
        if spec is not None and is_onnx(spec):
            return from_onnx(spec)
        if spec is not None and "image_shape" in metadata:
            channels, height, width = read_image_shape(path, metadata)
            return resolve_network(
                spec,
                num_classes=len(json.loads(metadata["classes"])),
                in_channels=channels,
                image_size=min(height, width),
                **(options or {}),
            )
    except (*DAMAGE, RuntimeError, DeepPruningError) as error:
        if spec is not None and isinstance(error, DeepPruningError):  # it says what is wrong with the spec
            raise
        raise WeightsError(f"{path}: its architecture cannot be rebuilt ({error})") from error
    raise WeightsError(
        f"{path} was pruned from a network that is not in the zoo; give an instance of its class: "
        "dp.load(path, model), dp.export(run, model), dp.bench(run, model)"
    )


def original_network(context: Context) -> nn.Module:
    """A copy of the network that is pruned, with all its filters."""
    return context.graph.prune(context.graph.full_genome())


def _cut_as_recorded(path: Path, model: nn.Module, text: str) -> nn.Module:
    """A copy of the network with the cut applied; a cut of another network is refused."""
    try:
        recipe = Recipe.from_json(text)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error
    _check_cut_fits(path, model, recipe)
    try:
        return cut(model, recipe)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(
            f"{path} does not belong to this network: its cut cannot be made ({error}); "
            "give the class it was pruned from"
        ) from error


def _check_cut_fits(path: Path, model: nn.Module, recipe: Recipe) -> None:
    """Refuse a cut of parameters or modules that this network does not have."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors}
    for name, places in recipe.parameters.items():
        for dimension, axis in places:
            shape = shapes.get(name)
            if shape is None or dimension >= len(shape) or shape[dimension] != recipe.widths[axis]:
                raise WeightsError(
                    f"{path} does not belong to this network: it cuts dimension {dimension} of {name} from "
                    f"{recipe.widths[axis]}, here it is {shape or 'absent'}; give the class it came from"
                )
    modules = {name for name, _ in model.named_modules()}
    missing = [name for name in (*recipe.detached, *recipe.norms, *recipe.sizes) if name not in modules]
    if missing:
        raise WeightsError(f"{path} does not belong to this network: it has no module {missing[0]}")


def _network_inside(model: nn.Module, expected: dict[str, tuple[int, ...]]) -> nn.Module:
    """The network that was cut: the model itself, or the module of these shapes inside it."""
    for module in model.modules():
        if _parameter_shapes(module) == expected:
            return module
    shapes = _parameter_shapes(model)
    name = _first_other_shape(expected, shapes)
    raise InputError(
        f"the network is not the one that this genome cuts: {name} is {shapes.get(name, 'absent')} in it and "
        f"{expected.get(name, 'absent')} in the cut; give the genome that it was cut by"
    )


def _parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _first_other_shape(shapes: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """The first name, in alphabetical order, that has not the same shape in both."""
    return min(name for name in shapes.keys() | others.keys() if shapes.get(name) != others.get(name))
