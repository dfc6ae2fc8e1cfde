"""What filters answer to images: the evidence of the criteria that look at activations."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.data.batches import Batches
from deeppruning.data.images import ImageSet
from deeppruning.graph import ChannelGraph
from deeppruning.system.device import precision_of
from deeppruning.training.evaluate import mode

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Activations:
    """Rectified answers of every gene's filters, averaged over the layers that carry the gene."""

    mean: Values  # (genes,)
    zeros: Values  # (genes,): share of places with no answer
    pooled: Values  # (images, genes): mean over the places of one image


def gather_activations(graph: ChannelGraph, images: ImageSet, device: str = "cpu") -> Activations:
    """Run the network on all images and watch where each filter shows.

    A filter's answer is what follows its normalisation, rectified: the output of every batch norm that
    its channel passes through (a DenseNet has several), of the convolution itself where there is none.
    """
    network = graph.prune(graph.full_genome()).to(device)
    watch = _Watch(graph.num_genes, len(images), carriers(graph, network))
    hooks = [
        network.get_submodule(name).register_forward_hook(partial(watch.see, name)) for name in watch.genes
    ]
    with mode(network, training=False), torch.inference_mode():
        for batch, _ in Batches(images, 250, device=device, precision=precision_of(network)):
            watch.images = len(batch)
            network(batch)
            watch.first += len(batch)
    for hook in hooks:
        hook.remove()
    return watch.result()


def carriers(graph: ChannelGraph, network: nn.Module) -> dict[str, NDArray[np.int64]]:
    """Module -> the gene of each channel of its output: batch norms, and convolutions without one."""
    by_parameter = graph.parameter_genes()
    found: dict[str, NDArray[np.int64]] = {}
    for name, module in network.named_modules():
        genes = by_parameter.get(f"{name}.running_mean", by_parameter.get(f"{name}.weight", {})).get(0)
        if isinstance(module, _BatchNorm) and genes is not None:
            found[name] = genes
    normalised = {gene for genes in found.values() for gene in genes.tolist()}
    modules = dict(network.named_modules())
    for name, listed in graph.layer_genes().items():
        # A convolution whose weights are no module's own has no output of its own that could be watched.
        if name in modules and any(gene >= 0 and gene not in normalised for gene in listed):
            found[name] = np.array(listed)
    return found


class _Watch:
    """Sums over the calls of the watched modules."""

    def __init__(self, num_genes: int, images: int, genes: dict[str, NDArray[np.int64]]) -> None:
        self.genes = genes
        self.first = self.images = 0
        self._pooled = np.zeros((images, num_genes))
        self._zeros = np.zeros((images, num_genes))
        self._seen = np.zeros((images, num_genes))

    def see(self, name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != self.images:
            return  # a part that sees something other than one entry an image tells nothing about images
        if isinstance(module, nn.Linear):  # which has its units last
            output = output.movedim(-1, 1)
        answers = torch.relu(output).flatten(2) if output.ndim > 2 else torch.relu(output).unsqueeze(2)
        rows = slice(self.first, self.first + self.images)
        genes = self.genes[name]
        decided = genes >= 0
        for total, values in (
            (self._pooled, answers.mean(2)),
            (self._zeros, (answers == 0).float().mean(2)),
            (self._seen, torch.ones(answers.shape[:2])),
        ):
            # Two channels of one layer may share a gene, so the sums are unbuffered.
            np.add.at(total[rows].T, genes[decided], values.double().cpu().numpy().T[decided])

    def result(self) -> Activations:
        seen = np.maximum(self._seen, 1.0)
        pooled, zeros = self._pooled / seen, self._zeros / seen
        return Activations(pooled.mean(axis=0), zeros.mean(axis=0), pooled)
