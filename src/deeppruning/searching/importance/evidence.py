"""What a criterion may look at: the network, inputs, and the activations of its filters on images."""

import sys
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.data.batches import Batches, normalize
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.searching.importance.elimination import Reader, gather_readers
from deeppruning.system.device import inputs_at_once, precision_of
from deeppruning.training.evaluate import image_format_for, mode

Scores = NDArray[np.float64]  # one per gene; the lowest is removed first
Values = NDArray[np.float64]
READ_INPUTS = 256  # by which what layers read is known


@dataclass(frozen=True, eq=False)
class Activations:
    """Rectified activations of every gene's filters, averaged over the layers that carry the gene."""

    mean: Values  # (genes,)
    zeros: Values  # (genes,): share of zeros
    pooled: Values  # (images, genes): mean over the positions of one image


@dataclass(frozen=True, eq=False)
class Evidence:
    """A trained network, its channel graph and, for criteria that use activations, some images."""

    graph: ChannelGraph
    model: nn.Module
    images: ImageSet | None = None
    device: str = "cpu"
    seed: int = 0
    inputs: Any = None  # in place of images, for a network with other inputs

    def generator(self) -> np.random.Generator:
        """Random numbers that follow from the seed alone."""
        return np.random.default_rng(self.seed)

    @cached_property
    def activations(self) -> Activations:
        """The activations on the images, computed once for all criteria."""
        if self.images is None:
            raise InputError(
                "this criterion uses the activations of filters on images, and there are none: "
                "give them, Evidence(graph, model, images)"
            )
        return gather_activations(self.graph, self.images, self.device)

    @cached_property
    def readers(self) -> dict[str, Reader]:
        """Statistics of what the layers read, on some of the inputs."""
        network = self.graph.prune(self.graph.full_genome())
        read = split_inputs(self.call(sys.maxsize))[0]
        few = part_of(read, slice(None, None, max(1, batch_size(read) // READ_INPUTS)))
        return gather_readers(self.graph, network, few, self.device)

    def call(self, most: int) -> Call:
        """At most about `most` inputs as the network is called with them, evenly spread."""
        if self.images is not None:
            chosen = torch.arange(0, len(self.images), max(1, len(self.images) // most))
            batch = normalize(self.images.images[chosen], self.images.normalization)
            return onto(((batch.to(precision_of(self.model)),), {}), self.device)
        if self.inputs is None:
            raise InputError("this criterion uses inputs, and there are none: give images or inputs")
        call = as_call(self.inputs)
        step = max(1, batch_size(call) // most)
        return onto(part_of(call, slice(None, None, step)), self.device)


def split_inputs(call: Call) -> tuple[Call, Call]:
    """Three quarters of the inputs, by which what layers read is known, and the others, to check it by."""
    others = torch.arange(batch_size(call)) % 4 == 2
    rows: list[Any] = [~others, others]
    return part_of(call, rows[0]), part_of(call, rows[1])


def gather_activations(graph: ChannelGraph, images: ImageSet, device: str = "cpu") -> Activations:
    """Run the network on all images and record the activations of every filter.

    They are taken behind the normalisation: from the output of every batch norm that the channel passes
    through (a DenseNet has several), or of the convolution itself if there is none.
    """
    network = graph.prune(graph.full_genome()).to(device)
    memory_format = image_format_for(network, images.image_shape, device)
    recorder = _Recorder(graph.num_genes, len(images), carriers(graph, network))
    hooks = [
        network.get_submodule(name).register_forward_hook(partial(recorder.record, name))
        for name in recorder.genes
    ]
    at_once = inputs_at_once(images.images[0].numel() * precision_of(network).itemsize, device)
    batches = Batches(
        images, at_once, device=device, precision=precision_of(network), memory_format=memory_format
    )
    with mode(network, training=False), torch.inference_mode():
        for batch, _ in batches:
            recorder.images = len(batch)
            network(batch)
            recorder.first += len(batch)
    for hook in hooks:
        hook.remove()
    return recorder.result()


def carriers(graph: ChannelGraph, network: nn.Module) -> dict[str, NDArray[np.int64]]:
    """Module -> the gene of each channel of its output: batch norms, and convolutions without one."""
    by_parameter = graph.parameter_genes()
    genes_by_module: dict[str, NDArray[np.int64]] = {}
    for name, module in network.named_modules():
        genes = by_parameter.get(f"{name}.running_mean", by_parameter.get(f"{name}.weight", {})).get(0)
        if isinstance(module, _BatchNorm) and genes is not None:
            genes_by_module[name] = genes
    normalised = {gene for genes in genes_by_module.values() for gene in genes.tolist()}
    modules = dict(network.named_modules())
    for name, listed in graph.layer_genes().items():
        # A convolution that uses the weights of another module has no output of its own to record.
        if name in modules and any(gene >= 0 and gene not in normalised for gene in listed):
            genes_by_module[name] = np.array(listed)
    return genes_by_module


class _Recorder:
    """Sums over the calls of the recorded modules."""

    def __init__(self, num_genes: int, images: int, genes: dict[str, NDArray[np.int64]]) -> None:
        self.genes = genes
        self.first = self.images = 0
        self._pooled = np.zeros((images, num_genes))
        self._zeros = np.zeros((images, num_genes))
        self._seen = np.zeros((images, num_genes))

    def record(self, name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """Add up the activations of a layer on a batch of images."""
        if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != self.images:
            return  # a module without one output per image says nothing about images
        if isinstance(module, nn.Linear):  # which has its units last
            output = output.movedim(-1, 1)
        rectified = torch.relu(output).flatten(2) if output.ndim > 2 else torch.relu(output).unsqueeze(2)
        rows = slice(self.first, self.first + self.images)
        genes = self.genes[name]
        decided = genes >= 0
        for total, values in (
            (self._pooled, rectified.mean(2)),
            (self._zeros, (rectified == 0).float().mean(2)),
            (self._seen, torch.ones(rectified.shape[:2])),
        ):
            # Two channels of one layer may share a gene, so the sums are unbuffered.
            np.add.at(total[rows].T, genes[decided], values.double().cpu().numpy().T[decided])

    def result(self) -> Activations:
        """Means over the images."""
        seen = np.maximum(self._seen, 1.0)
        pooled, zeros = self._pooled / seen, self._zeros / seen
        return Activations(pooled.mean(axis=0), zeros.mean(axis=0), pooled)
