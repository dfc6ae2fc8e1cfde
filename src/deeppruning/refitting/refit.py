"""One forward pass that solves each layer of a thin network on the inputs it really sees, in their order."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.refitting.patches import patches_at
from deeppruning.refitting.reference import LayerAnswers, Reference
from deeppruning.refitting.solve import Fit

RIDGE = 0.03
CHUNK = 2**25  # numbers of the patches that are held at once


@dataclass(frozen=True)
class Refitted:
    """A thin network after its one pass, and the layers that were left as cut, each with the reason."""

    model: nn.Module
    left: dict[str, str] = field(default_factory=dict)


def refit(graph: ChannelGraph, genome: Any, inputs: Any, *, ridge: float = RIDGE) -> nn.Module:
    """Cut, then refit in closed form on a batch of inputs: no labels, no training, no randomness.

    Every convolution and linear layer is solved for the answers of the original's filters that stay, on
    what the thin network's own layers before it give; batch norms are moved along in the same pass.
    """
    done = refit_with(Reference.of(graph, inputs), graph, genome, ridge=ridge)
    if done.left:
        listed = "; ".join(f"{name}: {reason}" for name, reason in done.left.items())
        warnings.warn(f"left as cut, not refitted: {listed}", stacklevel=2)
    return done.model


def refit_with(reference: Reference, graph: ChannelGraph, genome: Any, *, ridge: float = RIDGE) -> Refitted:
    """The same against a reference that was recorded before, as a search does for all its candidates."""
    thin = graph.prune(genome).eval()
    return Refitted(thin, refit_in_place(reference, graph, genome, thin, ridge=ridge))


def refit_in_place(
    reference: Reference, graph: ChannelGraph, genome: Any, thin: nn.Module, *, ridge: float = RIDGE
) -> dict[str, str]:
    """Refit a network that `graph.prune(genome)` cut; the layers left as cut come back, with the reasons."""
    if not 0 <= ridge < float("inf"):
        raise InputError(f"ridge must be at least 0 and finite, got {ridge}")
    run = _Pass(reference, graph.recipe(genome), thin.eval(), ridge)
    run.go()
    return {**{k: v for k, v in reference.left.items() if k in run.layers}, **run.left}


class _Pass:
    """The pass: before a layer runs it is solved, before a norm runs it is moved."""

    def __init__(self, reference: Reference, recipe: Recipe, thin: nn.Module, ridge: float) -> None:
        self.reference = reference
        self.recipe = recipe
        self.thin = thin
        self.ridge = ridge
        self.left: dict[str, str] = {}
        self.layers = {n for n, m in thin.named_modules() if hasattr(m, "weight")}

    def go(self) -> None:
        """Run the thin network once; its weights change on the way."""
        handles = []
        with torch.no_grad():
            for name, module in self.thin.named_modules():
                if isinstance(module, Answer):
                    self._answer(name, module)
                elif name in self.reference.layers and not isinstance(module, Hollow):
                    handles.append(
                        module.register_forward_pre_hook(lambda m, i, name=name: self._layer(name, m, i[0]))
                    )
                elif name in self.reference.norms and isinstance(module, _BatchNorm):
                    handles.append(
                        module.register_forward_pre_hook(lambda m, i, name=name: self._norm(name, m, i[0]))
                    )
            try:
                self.thin(*self.reference.args, **self.reference.kwargs)
            finally:
                for handle in handles:
                    handle.remove()

    def _kept(self, name: str, dimension: int, width: int) -> Tensor:
        """The original's positions that stay along a dimension of a parameter."""
        name = self.recipe.aliases.get(name, name)
        for place, axis in self.recipe.parameters.get(name, ()):
            if place == dimension:
                return torch.as_tensor(self.recipe.kept[axis])
        return torch.arange(width)

    def _answer(self, name: str, module: Answer) -> None:
        """A branch that is gone answers with the mean of what it answered."""
        mean = self.reference.means[name]
        key = "bias" if f"{name}.bias" in self.recipe.parameters else "weight"
        module.bias.copy_(mean[self._kept(f"{name}.{key}", 0, len(mean))])

    def _norm(self, name: str, norm: _BatchNorm, x: Tensor) -> None:
        """Move the statistics as the inputs have moved, so that an uncut network stays as it is."""
        if norm.running_mean is None or norm.running_var is None:
            return
        mean, variance = self.reference.norms[name]
        kept = self._kept(f"{name}.running_mean", 0, len(mean)).to(mean.device)
        mean, variance = mean[kept], variance[kept]
        found_variance, found_mean = torch.var_mean(
            x.double(), [d for d in range(x.dim()) if d != 1], correction=0
        )
        norm.running_mean += (found_mean - mean).to(norm.running_mean)
        ratio = torch.where(variance > 1e-12, found_variance / variance.clamp_min(1e-12), 1.0)
        norm.running_var *= ratio.to(norm.running_var)

    def _layer(self, name: str, layer: nn.Module, x: Tensor) -> None:
        known = self.reference.layers[name]
        if not bool(torch.isfinite(x).all()):
            raise InputError(f"{name} reads numbers that are not finite after the cut; check the weights")
        filters = self._kept(f"{name}.weight", 0, known.answers.shape[-1]).to(x.device)
        wanted = known.answers.index_select(-1, filters)
        if known.reads is None:
            self._solve(layer, known, x, wanted)
        else:
            self._mix(name, layer, known, x, wanted, filters)

    def _solve(self, layer: Any, known: LayerAnswers, x: Tensor, wanted: Tensor) -> None:
        """The full solve: every weight of a filter is an unknown; group by group."""
        groups = getattr(layer, "groups", 1)
        weight: Tensor = layer.weight
        unknowns, outputs = weight[0].numel(), weight.shape[0] // groups
        offset = layer.bias is not None or known.normed
        fit = Fit(inputs=unknowns, outputs=outputs, intercept=offset, leading=(groups,))
        for rows in _pieces(len(x), known.places.numbers.shape[1] * unknowns * groups):
            part = patches_at(layer, x[rows], _of(known, rows))
            # (inputs, places, channels, kernel) -> (groups, rows, unknowns)
            part = part.reshape(-1, groups, unknowns).transpose(0, 1)
            fit.add(part, wanted[rows].reshape(-1, groups, outputs).transpose(0, 1))
        start = weight.reshape(groups, outputs, unknowns).mT
        solved, offsets = fit.solve(start, self.ridge)
        weight.copy_(solved.mT.reshape(weight.shape))
        if layer.bias is not None:
            layer.bias.copy_(offsets.reshape(-1))

    def _mix(
        self, name: str, layer: Any, known: LayerAnswers, x: Tensor, wanted: Tensor, filters: Tensor
    ) -> None:
        """Too many unknowns: express the original's input channels by those that stay, and fold that in."""
        assert known.reads is not None
        weight: Tensor = layer.weight
        if getattr(layer, "groups", 1) > 1:
            self.left[name] = "its groups are too wide to be solved"
            return
        original = self.reference.model.get_submodule(name).weight
        assert isinstance(original, Tensor)
        full, thin = original.shape[1], weight.shape[1]
        fit = Fit(inputs=thin, outputs=full, intercept=False)
        for rows in _pieces(len(x), known.places.numbers.shape[1] * weight[0].numel()):
            part = patches_at(layer, x[rows], _of(known, rows))
            fit.add(part[..., part.shape[-1] // 2].flatten(0, 1), known.reads[rows].flatten(0, 1))
        start = torch.zeros(thin, full).to(weight)
        start[torch.arange(thin), self._kept(f"{name}.weight", 1, full).to(start.device)] = 1.0
        mixture, _ = fit.solve(start, self.ridge)
        chosen = original[filters].flatten(2)
        mixed = torch.einsum("ofk,tf->otk", chosen, mixture).reshape(weight.shape)
        if self._error(layer, mixed, known, x, wanted) <= self._error(layer, weight, known, x, wanted):
            weight.copy_(mixed)
        else:
            self.left[name] = "mixing its channels would not bring it nearer to the original"

    def _error(self, layer: Any, weight: Tensor, known: LayerAnswers, x: Tensor, wanted: Tensor) -> float:
        """How far a layer with these weights is from what is wanted, in sum."""
        total = 0.0
        for rows in _pieces(len(x), known.places.numbers.shape[1] * weight[0].numel()):
            part = patches_at(layer, x[rows], _of(known, rows)).flatten(2)
            gap = wanted[rows] - part @ weight.flatten(1).T
            gap = gap if layer.bias is None else gap - layer.bias
            total += float(gap.square().sum())
        return total


def _of(known: LayerAnswers, rows: slice) -> Any:
    places = known.places
    return type(places)(places.numbers[rows], places.extents)


def _pieces(count: int, numbers_each: int) -> Sequence[slice]:
    """The inputs in pieces whose patches fit into memory."""
    size = max(1, CHUNK // max(1, numbers_each))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
