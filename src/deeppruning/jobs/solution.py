"""A solution, and its file: safetensors with the thin weights, and in its metadata all that a reader needs.

The cut is written out in plain numbers, so a file is read back without building the channel graph, by
any later version, and with no code in it that could run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deeppruning.errors import DAMAGE, DeepPruningError, WeightsError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.models.registry import create_bounded_model
from deeppruning.training.finite import check_learnt
from deeppruning.training.tensors import read_tensors, write_tensors
from deeppruning.training.weights import check_given

FORMAT = "deeppruning-solution/1"


@dataclass(frozen=True, eq=False)
class Solution:
    """A pick: a thin, fine-tuned network and what it costs."""

    role: str
    id: int
    model: nn.Module
    genome: Genome
    train_error: float  # in the search, on its sample
    test_error: float | None  # after fine-tuning
    flops: int
    flops_pruned: float  # share of the original's, 0..1
    params: int
    path: Path | None  # None for a network that is not saved
    refitted: bool = False  # fine-tuning did not help, so these are the weights from before it
    lr_factor: float = 1.0  # below 1 where fine-tuning diverged and started again at so much of the rate
    example_input: Any = None  # of a network that is not saved: a saved one has it in its file

    def __repr__(self) -> str:  # without the network itself, which would fill pages
        error = "" if self.test_error is None else f", test error {self.test_error:.4g}"
        cost = f"{self.flops:,} FLOPs (-{100 * self.flops_pruned:.1f} %), {self.params:,} parameters"
        place = "not saved" if self.path is None else repr(str(self.path))
        return f"Solution({self.role}, candidate {self.id}{error}, {cost}, {place})"


def save_solution(solution: Solution, graph: ChannelGraph, description: Mapping[str, str]) -> None:
    """Write the solution whole or not at all; the same solution gives the same bytes.

    Raises Diverged for weights that are not finite.
    """
    assert solution.path is not None
    retried = {"lr_factor": json.dumps(solution.lr_factor)} if solution.lr_factor != 1.0 else {}
    errors = solution.train_error, solution.test_error
    untuned = {"refitted": json.dumps(True)} if solution.refitted else {}
    named = {"role": solution.role, "candidate": str(solution.id), **retried, **untuned, **description}
    write_thin(solution.path, solution.model, graph, solution.genome, errors, named)


def write_thin(
    path: Path,
    model: nn.Module,
    graph: ChannelGraph,
    genome: Genome,
    errors: tuple[float | None, float | None],
    description: Mapping[str, str],
) -> None:
    """The weights of a thin network with its cut, its costs, and its errors in search and test."""
    check_learnt(model, f"the {description.get('role', 'thin')} network")
    metadata = {
        "format": FORMAT,
        "cut": graph.recipe(genome).to_json(),
        "flops": str(graph.flops(genome)),
        "params": str(graph.params(genome)),
        "train_error": json.dumps(errors[0]),
        "test_error": json.dumps(errors[1]),
        **description,
    }
    write_tensors(path, model.state_dict(), metadata)


def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """A saved solution as a thin network in evaluation mode.

    A network of the zoo is rebuilt by itself; for your own class give an instance of the original,
    whose weights do not matter and which stays as it is.
    """
    path = Path(path)
    metadata, weights = read_solution(path)
    if model is None:
        model = rebuild(path, metadata)
    thin = _thin(path, model, metadata["cut"])
    wanted = {name: tensor.shape for name, tensor in thin.state_dict().items()}
    for name in sorted(wanted.keys() | weights.keys()):
        here, there = wanted.get(name), weights[name].shape if name in weights else None
        if here != there:
            raise WeightsError(
                f"{path} does not belong to this network: {name} is {_shown(there)} in the file and "
                f"{_shown(here)} in the network; give the class it was pruned from"
            )
    check_given(path, thin, weights)
    try:
        thin.load_state_dict(weights)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(f"{path} holds weights that its network cannot take ({error})") from error
    return thin.eval()


def read_solution(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and weights of a saved solution; anything else is refused."""
    if not path.is_file():
        raise WeightsError(
            f"{path} is not a file; give a solution of a run, for example runs/mine/knee.safetensors"
        )
    weights, metadata = read_tensors(path)
    kind = metadata.get("format", "")
    if kind != FORMAT or "cut" not in metadata:
        what = f"has format {kind!r}" if kind else "records no cut"
        raise WeightsError(f"{path} {what}: it is not a solution saved by a run that this version reads")
    return metadata, weights


def _thin(path: Path, model: nn.Module, written: str) -> nn.Module:
    """A copy of the network, cut as it is written; a cut that is not one of this network is refused."""
    try:
        recipe = Recipe.from_json(written)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error
    _check_fits(path, model, recipe)
    try:
        return cut(model, recipe)
    except (*DAMAGE, RuntimeError) as error:
        raise WeightsError(
            f"{path} does not belong to this network: its cut cannot be made ({error}); "
            "give the class it was pruned from"
        ) from error


def rebuild(path: Path, metadata: Mapping[str, str]) -> nn.Module:
    """The network of the zoo that a solution was pruned from; its weights do not matter."""
    if "architecture" not in metadata:
        raise WeightsError(
            f"{path} was pruned from a network that is not in the zoo; "
            "give an instance of its class: load(path, model)"
        )
    try:
        table: dict[str, Any] = json.loads(metadata["architecture"])
        return create_bounded_model(table.pop("name"), **table)
    except (*DAMAGE, RuntimeError, DeepPruningError) as error:
        raise WeightsError(f"{path}: its architecture cannot be rebuilt ({error})") from error


def _check_fits(path: Path, model: nn.Module, recipe: Recipe) -> None:
    """Refuse a cut that speaks of parameters or modules this network does not have."""
    shapes = {
        name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }
    modules = {name for name, _ in model.named_modules()}
    for name, places in recipe.parameters.items():
        for dimension, axis in places:
            shape = shapes.get(name)
            if shape is None or dimension >= len(shape) or shape[dimension] != recipe.widths[axis]:
                raise WeightsError(
                    f"{path} does not belong to this network: it cuts dimension {dimension} of {name} from "
                    f"{recipe.widths[axis]}, here it is {_shown(shape)}; give the class it was pruned from"
                )
    strangers = [name for name in (*recipe.detached, *recipe.norms) if name not in modules]
    if strangers:
        raise WeightsError(f"{path} does not belong to this network: it has no module {strangers[0]}")


def _shown(shape: Any) -> str:
    return "absent" if shape is None else str(tuple(shape))
