"""Span: filters in the order in which each next one tells most of what the chosen ones do not yet tell."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.searching.importance.criteria import Criterion, L1Norm, register_criterion
from deeppruning.searching.importance.evidence import Evidence
from deeppruning.searching.importance.orders import Scores
from deeppruning.training.evaluate import mode

IMAGES = 256
ROWS = 4096  # places of all images that a reader is looked at
Matrix = NDArray[np.float64]


@register_criterion
class Span(Criterion):
    """Greedy pivoted Cholesky on the covariance of what the readers of a group's filters see.

    Each channel counts by the norm of its readers' weights. The score of a filter is how much was left to
    be told when its turn came, so that a copy of another filter is worth nothing. Filters that no layer
    reads by a weight of its own are worth their l1-norm, scaled below all others.
    """

    name = "span"

    def scores(self, evidence: Evidence) -> Scores:
        """What each gene adds, in the order of choice within its group."""
        graph = evidence.graph
        groups = [np.array(group.genes) for group in graph.groups if group.prunable]
        place = np.zeros(graph.num_genes, dtype=np.int64)
        member = np.full(graph.num_genes, -1, dtype=np.int64)
        for number, genes in enumerate(groups):
            place[genes], member[genes] = np.arange(len(genes)), number
        told = [np.zeros((len(genes), len(genes))) for genes in groups]
        read = np.zeros(graph.num_genes, dtype=np.bool_)
        network = graph.prune(graph.full_genome()).to(evidence.device)
        readers = _readers(evidence, network)

        def see(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if not inputs or not isinstance(inputs[0], Tensor):
                return
            genes, rows = readers[name], _rows(module, inputs[0])
            if rows is None or rows.shape[1] != len(genes):
                return
            weight = module.weight
            assert isinstance(weight, Tensor)
            read[genes[genes >= 0]] = True
            norms = weight.detach().double().cpu().transpose(0, 1).flatten(1).norm(dim=1).numpy()
            for number in np.unique(member[genes[genes >= 0]]):
                positions = np.flatnonzero((genes >= 0) & (member[np.maximum(genes, 0)] == number))
                _add(told[number], rows[:, positions], norms[positions], place[genes[positions]])

        hooks = [
            network.get_submodule(name).register_forward_pre_hook(partial(see, name)) for name in readers
        ]
        try:
            with mode(network, training=False), torch.inference_mode():
                args, kwargs = evidence.call(IMAGES)
                network(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        scores = np.zeros(graph.num_genes)
        for genes, covariance in zip(groups, told, strict=True):
            scores[genes] = left_to_tell(covariance)
        if not read.all():
            norms = L1Norm().scores(evidence)
            least = scores[scores > 0].min(initial=1.0)
            scores[~read] = norms[~read] / max(float(norms.max()), 1e-12) * least / 2
        return scores


def left_to_tell(covariance: Matrix) -> Scores:
    """For each variable, its variance given those chosen before it; the largest is chosen next.

    >>> left_to_tell(np.array([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [4.0, 0.0, 1.0]
    """
    count = len(covariance)
    left = covariance.diagonal().astype(np.float64).copy()
    factors = np.zeros((count, count))
    scores = np.zeros(count)
    waiting = np.ones(count, dtype=np.bool_)
    for step in range(count):
        pivot = int(np.argmax(np.where(waiting, left, -np.inf)))
        scores[pivot], waiting[pivot] = max(left[pivot], 0.0), False
        if left[pivot] <= 1e-12:
            continue
        column = (covariance[:, pivot] - factors[:, :step] @ factors[pivot, :step]) / np.sqrt(left[pivot])
        factors[:, step] = column
        left = left - column**2
    return scores


def _readers(evidence: Evidence, network: nn.Module) -> dict[str, NDArray[np.int64]]:
    """Layer that reads prunable channels by weights of its own -> the gene of each channel it reads."""
    by_parameter = evidence.graph.parameter_genes()
    found = {}
    for name, module in network.named_modules():
        genes = by_parameter.get(f"{name}.weight", {}).get(1)
        plain = isinstance(module, nn.Linear) or (
            isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd) and module.groups == 1
        )
        if plain and genes is not None and (genes >= 0).any():
            found[name] = genes
    return found


def _rows(module: nn.Module, x: Tensor) -> Tensor | None:
    """(rows, channels): some places of what a layer reads, evenly spread."""
    if isinstance(module, nn.Linear):
        flat = x.flatten(0, -2)
    elif x.dim() > 2:
        flat = x.transpose(0, 1).flatten(1).T
    else:
        return None
    step = max(1, len(flat) // ROWS)
    return flat[::step].double().cpu()


def _add(told: Matrix, rows: Tensor, norms: Matrix, places: NDArray[np.int64]) -> None:
    """Add the weighted covariance of some channels; a gene that has several of them adds them one by one."""
    centred = (rows - rows.mean(0)).numpy() * norms
    times = np.zeros(len(places), dtype=np.int64)
    seen: dict[int, int] = {}
    for number, place in enumerate(places.tolist()):
        times[number] = seen[place] = seen.get(place, -1) + 1
    for turn in range(int(times.max(initial=0)) + 1):
        part = np.flatnonzero(times == turn)
        covariance = centred[:, part].T @ centred[:, part] / max(len(centred), 1)
        told[np.ix_(places[part], places[part])] += covariance
