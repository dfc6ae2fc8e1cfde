"""What is lost when filters of a group go one after another, from statistics of what the next layers read.

A layer that reads a group can express the channels that are gone by those that are left. What it cannot
express is an error in its output. Given the order in which filters go, one factorisation gives this error at
every width: when a channel goes, those left take over its weights, as in optimal brain surgeon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, batch_size, onto, part_of, portions
from deeppruning.training.evaluate import mode

RIDGE = 0.01  # of the mean variance: channels that are nearly copies of others stay well conditioned
FEW_ROWS = 0.25  # added to it, times channels per row: few rows say little about many channels
STEPS = 64  # in which a group is emptied
ROWS, ROWS_PER_CHANNEL = 4096, 4  # positions of all inputs at which what a layer reads is sampled


@dataclass(frozen=True, eq=False)
class StandIn:
    """How a layer's input is completed when channels are gone: each is expressed by those that are left."""

    kept: Tensor
    gone: Tensor
    weights: Tensor  # (gone, kept)
    offsets: Tensor  # (gone,)

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """A forward pre-hook of the layer."""
        x = inputs[0].clone()
        weights, offsets = self.weights.to(x), self.offsets.to(x)
        if isinstance(module, nn.Linear):
            x[..., self.gone] = x[..., self.kept] @ weights.T + offsets
        else:
            made = weights @ x[:, self.kept].flatten(2) + offsets[:, None]
            x[:, self.gone] = made.reshape(len(x), len(self.gone), *x.shape[2:])
        return (x, *inputs[1:])


@dataclass(frozen=True, eq=False)
class Reader:
    """A layer, the gene of each channel that it reads (-1 for none), and their mean and covariance."""

    genes: NDArray[np.int64]
    weight: Tensor  # (channels, all weights that read them)
    mean: Tensor
    covariance: Tensor
    rows: int  # from which these are known

    @property
    def regular(self) -> Tensor:
        """The covariance with a ridge: channels that never vary would otherwise leave it singular."""
        share = RIDGE + FEW_ROWS * len(self.mean) / self.rows
        ridge = share * float(self.covariance.diagonal().mean()) + 1e-12
        return self.covariance + ridge * torch.eye(len(self.mean), dtype=torch.float64)

    @property
    def scale(self) -> float:
        """The variance of the layer's output, as if kernel positions were independent."""
        return float((self.weight.T @ self.covariance * self.weight.T).sum())

    def matrices(self, genes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Covariance, with a ridge, and products of weights over a group's genes; none if it reads none.

        A gene that is read through several channels, as behind a flattening, is in one pair for each.
        """
        place = {gene: number for number, gene in enumerate(genes)}
        turns: list[dict[int, int]] = []  # place in the group -> channel
        for channel, gene in enumerate(self.genes.tolist()):
            if gene in place:
                turn = next((each for each in turns if place[gene] not in each), None)
                if turn is None:
                    turns.append(turn := {})
                turn[place[gene]] = channel
        pairs, regular, size = [], self.regular, len(genes)
        for turn in turns:
            places, channels = torch.tensor(list(turn)), torch.tensor(list(turn.values()))
            weight = self.weight[channels]
            # A gene that this layer does not read is nothing to it: any variance, but no weight.
            covariance, product = torch.eye(size).double(), torch.zeros(size, size).double()
            covariance[places[:, None], places] = regular[channels][:, channels]
            product[places[:, None], places] = weight @ weight.T / max(self.scale, 1e-12)
            pairs.append((covariance, product))
        return pairs

    def stand_in(self, genes: Sequence[int], genome: Genome) -> StandIn | None:
        """The stand-in for the channels of these genes that a genome removes; None where it removes none."""
        of_group = np.isin(self.genes, genes)
        stays = genome[np.maximum(self.genes, 0)]
        kept = torch.from_numpy(np.flatnonzero(of_group & stays))
        gone = torch.from_numpy(np.flatnonzero(of_group & ~stays))
        if not len(gone):
            return None
        weights = torch.zeros(len(gone), len(kept), dtype=torch.float64)
        if len(kept):
            regular = self.regular[kept][:, kept]
            weights = torch.linalg.solve(regular, self.covariance[kept][:, gone]).T
        offsets = self.mean[gone] - weights @ self.mean[kept]
        return StandIn(kept, gone, weights.float(), offsets.float())


@dataclass(frozen=True, eq=False)
class Elimination:
    """The loss at some widths of a group."""

    widths: NDArray[np.int64]  # falling
    losses: NDArray[np.float64]  # relative to the variance of the readers' outputs, rising

    def loss(self, width: float) -> float:
        """The loss at a width, interpolated."""
        return float(np.interp(-width, -self.widths, self.losses))


def gather_readers(
    graph: ChannelGraph, network: nn.Module, call: Call, device: str = "cpu"
) -> dict[str, Reader]:
    """Run the original on inputs and gather the statistics of every layer that reads prunable channels."""
    network = network.to(device)
    genes = _genes_read(graph, network)
    count = batch_size(call)
    sums: dict[str, _Sums] = {}

    def record(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            rows = _rows_of_input(module, inputs[0], len(genes[name]), count)
            if rows is not None:
                sums.setdefault(name, _Sums()).add(rows)

    hooks = [network.get_submodule(name).register_forward_pre_hook(partial(record, name)) for name in genes]
    try:
        with mode(network, training=False), torch.inference_mode():
            for rows in portions(call, device):
                args, kwargs = onto(part_of(call, rows), device)
                network(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: total.reader(genes[name], network.get_submodule(name)) for name, total in sums.items()}


def eliminate_groups(
    graph: ChannelGraph, readers: Mapping[str, Reader], scores: NDArray[np.float64]
) -> list[Elimination | None]:
    """The elimination of each prunable group, the lowest scores first.

    None for one that no layer reads with weights of its own.
    """
    return [
        eliminate(matrices, np.argsort(scores[list(group.genes)], kind="stable")) if matrices else None
        for group in graph.groups
        if group.prunable
        for matrices in [[pair for reader in readers.values() for pair in reader.matrices(group.genes)]]
    ]


def eliminate(
    readers: Sequence[tuple[Tensor, Tensor]], order: NDArray[np.int64], steps: int = STEPS
) -> Elimination:
    """The losses of a group whose channels go in an order, read by layers that each give two matrices.

    The first is the covariance of what it reads, with a ridge; the second says how errors of two channels
    add up in its output: the products of their weights. Here the third channel is nearly the second: it goes
    for nothing, and the second takes over its weight. Then variance times squared weight is lost.

    >>> covariance = torch.tensor([[4.0, 0.0, 0.0], [0.0, 1.0, 0.99], [0.0, 0.99, 1.0]])
    >>> lost = eliminate([(covariance, torch.eye(3))], np.array([2, 1, 0]))
    >>> lost.widths.tolist(), [round(float(loss)) for loss in lost.losses]
    ([3, 2, 1, 0], [0, 0, 2, 6])
    """
    inverses = [torch.linalg.inv(covariance.double()) for covariance, _ in readers]
    products = [product.double().clone() for _, product in readers]
    widths, losses = [len(order)], [0.0]
    for going in torch.split(torch.from_numpy(order), max(1, len(order) // steps)):
        lost = sum(
            _remove_channels(inverse, product, going)
            for inverse, product in zip(inverses, products, strict=True)
        )
        widths.append(widths[-1] - len(going))
        losses.append(losses[-1] + max(lost, 0.0))
    return Elimination(np.array(widths), np.array(losses))


def _remove_channels(inverse: Tensor, product: Tensor, going: Tensor) -> float:
    """Remove channels from both matrices, in place: those left take over their weights. Returns the error."""
    block = torch.linalg.inv(inverse[going][:, going])
    rows, corner = product[going].clone(), product[going][:, going].clone()
    taken = inverse[:, going] @ block
    taken[going] = torch.eye(len(going), dtype=taken.dtype)
    half = rows - 0.5 * corner @ taken.T
    product.addmm_(taken, half, alpha=-1)
    product.addmm_(half.T, taken.T, alpha=-1)
    inverse.addmm_(taken, inverse[going].clone(), alpha=-1)
    return float((corner * block.T).sum())


def _genes_read(graph: ChannelGraph, network: nn.Module) -> dict[str, NDArray[np.int64]]:
    """Layers with their own weights for prunable channels -> the gene of each channel they read."""
    by_parameter = graph.parameter_genes()
    readers = {}
    for name, module in network.named_modules():
        genes = by_parameter.get(f"{name}.weight", {}).get(1)
        plain = isinstance(module, nn.Linear) or (
            isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd) and module.groups == 1
        )
        if plain and genes is not None and (genes >= 0).any():
            readers[name] = genes
    return readers


def _rows_of_input(module: nn.Module, x: Tensor, channels: int, inputs: int) -> Tensor | None:
    """(rows, channels): some positions of a layer's input, evenly spread; None for an unusual input."""
    if isinstance(module, nn.Linear):
        values = x[:, None] if x.dim() == 2 else x.flatten(1, -2)
    elif x.dim() > 2:
        values = x.flatten(2).mT
    else:
        return None
    if values.shape[-1] != channels:
        return None
    wanted = -(-max(ROWS, ROWS_PER_CHANNEL * channels) // inputs)
    step = max(1, values.shape[1] // wanted) | 1  # an odd step does not stay in one column of the image
    return values[:, ::step].flatten(0, 1).double().cpu()


class _Sums:
    """Sums of rows and of their products."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = self.products = torch.zeros((), dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Add rows (rows, channels)."""
        self.rows += len(rows)
        self.total = self.total + rows.sum(0)
        self.products = self.products + rows.T @ rows

    def reader(self, genes: NDArray[np.int64], module: nn.Module) -> Reader:
        """The statistics of a layer."""
        mean = self.total / self.rows
        covariance = self.products / self.rows - torch.outer(mean, mean)
        weight = module.weight
        assert isinstance(weight, Tensor)
        return Reader(
            genes, weight.detach().double().cpu().transpose(0, 1).flatten(1), mean, covariance, self.rows
        )
