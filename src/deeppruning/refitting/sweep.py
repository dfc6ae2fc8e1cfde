"""One forward pass that solves each layer of a thin network, in order, on the inputs it really sees."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from deeppruning.errors import InputError
from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.refitting.goals import Goal, find_goal
from deeppruning.refitting.patches import Places, answers_at
from deeppruning.refitting.records import LayerRecord, Moments
from deeppruning.refitting.reference import Reference
from deeppruning.refitting.solve import Fit
from deeppruning.refitting.turns import Turns

MIXING_RIDGE = 0.1


class Sweep:
    """The pass: just before they run, layers are solved and norms are adapted, on all inputs at once.

    The inputs run in parts. Each part adds what it knows to a layer's equations and waits; the last one
    solves them.
    """

    def __init__(self, reference: Reference, recipe: Recipe, thin: nn.Module, ridge: float | None) -> None:
        self.reference = reference
        self.recipe = recipe
        self.thin = thin
        self.ridge = ridge
        self.left: dict[str, str] = {}
        self.modules = dict(thin.named_modules())
        self.originals = dict(reference.model.named_modules())
        self.layers = {n for n, m in self.modules.items() if not isinstance(m, (Answer, Hollow))}
        self.moved: set[str] = set()  # norms that were adapted together with the layer before them
        self.turns = Turns(len(reference.parts))
        self.held: dict[tuple[int, str], Tensor] = {}  # by part and layer: what its answer will be added to
        self.begun: set[int] = set()  # parts that met something that was cut: before it nothing is solved
        self.open: dict[str, Any] = {}  # equations of the layer that parts wait at

    def go(self) -> float:
        """Run the thin network once, which changes its weights; returns the distance of its outputs."""
        handles: list[RemovableHandle] = []
        with torch.no_grad():
            handles += self._watch_for_first_cut()
            for name, record in self.reference.layers.items():
                if record.partner is not None:
                    handles += self._hold_partner(name, record)
            for name, module in self.modules.items():
                if isinstance(module, Answer):
                    handles += self._adapt_answer(name, module)
                elif isinstance(module, Hollow):
                    continue
                elif name in self.reference.layers:
                    handles.append(
                        module.register_forward_pre_hook(
                            lambda m, i, name=name: self._solve_layer(name, m, i[0])
                        )
                    )
                elif name in self.reference.norms and isinstance(module, _BatchNorm):
                    handles.append(
                        module.register_forward_pre_hook(
                            lambda m, i, name=name: self._adapt_norm(name, m, i[0])
                        )
                    )
        try:
            return float(sum(self.turns.run(self._run_part)))
        finally:
            for handle in handles:
                handle.remove()

    def _run_part(self, part: int) -> float:
        """Run the thin network on one part of the inputs: how far its outputs are from the original's."""
        with torch.no_grad():  # holds for one thread only
            return self.reference.gap_of(self.reference.run(self.thin, part), part)

    def _rows(self, record: LayerRecord) -> slice:
        """A layer's rows of the part that is running."""
        return record.parts[self.turns.current]

    def _watch_for_first_cut(self) -> list[RemovableHandle]:
        """Notice when the first module runs that differs from the original's."""
        cut = [name for name, module in self.modules.items() if self._is_module_cut(name, module)]
        if any(name not in self.reference.called for name in cut):
            self.begun.update(range(self.turns.count))  # its weights are read elsewhere, at an unknown time

        def met(*_: Any) -> None:
            self.begun.add(self.turns.current)

        return [self.modules[name].register_forward_pre_hook(met) for name in cut]

    def _is_module_cut(self, name: str, module: nn.Module) -> bool:
        original = self.originals.get(name)
        return type(module) is not type(original) or _own_shapes(module) != _own_shapes(original)

    def _hold_partner(self, name: str, record: LayerRecord) -> list[RemovableHandle]:
        """Keep what the layer's answer will be added to until the layer is solved."""
        assert record.partner is not None
        if isinstance(self.modules.get(record.norm or name), Hollow):
            return []

        def keep(value: Tensor) -> None:
            self.held[self.turns.current, name] = value

        return record.partner.anchor.hold(self.modules, keep)

    def _kept_positions(self, name: str, dimension: int, width: int) -> Tensor:
        """The original's positions that stay along a dimension of a parameter."""
        return torch.as_tensor(self.recipe.kept_along(name, dimension, width))

    def _missing_in_sum(
        self, name: str, record: LayerRecord, filters: Tensor, *, linear: bool
    ) -> Tensor | None:
        """(inputs, places, filters): what the other side of the sum has lost; None where that is unknown."""
        held, partner = self.held.pop((self.turns.current, name), None), record.partner
        if held is None or partner is None:
            return None
        places = Places(record.places.numbers[self._rows(record)], record.places.extents)
        batch, extents = places.numbers.shape[0], places.extents
        shape = (batch, *extents, len(filters)) if linear else (batch, len(filters), *extents)
        try:
            here = answers_at(held.broadcast_to(shape), places, channels_last=linear)
        except RuntimeError:  # it has other channels in the thin network
            return None
        return partner.answers[self._rows(record)].index_select(-1, filters) - here

    def _adapt_answer(self, name: str, module: Answer) -> list[RemovableHandle]:
        """A removed branch answers with its mean in the original, plus what the sum lacks."""
        mean = self.reference.means.get(name)
        if mean is None:
            return []
        key = "bias" if f"{name}.bias" in self.recipe.parameters else "weight"
        kept = self._kept_positions(f"{name}.{key}", 0, len(mean)).to(mean.device)
        module.bias.copy_(mean[kept])
        layers = self.reference.layers
        layer = next((each for each, record in layers.items() if name == (record.norm or each)), None)
        if layer is None:
            return []
        return [module.register_forward_pre_hook(lambda m, i: self._make_up_answer(layer, module, kept))]

    def _make_up_answer(self, layer: str, module: Answer, kept: Tensor) -> None:
        """Add what an answer lacks to the sums of its new constant."""
        linear = isinstance(self.reference.model.get_submodule(layer), nn.Linear)
        missing = self._missing_in_sum(layer, self.reference.layers[layer], kept, linear=linear)
        if missing is None:
            return
        lacking: Moments = self.open.setdefault(layer, Moments())
        lacking.add(missing.movedim(-1, 1))
        self.turns.meet(layer, lambda: self._write_answer(layer, module))

    def _write_answer(self, layer: str, module: Answer) -> None:
        module.bias.add_(self.open.pop(layer).result()[0].to(module.bias))

    def _adapt_norm(self, name: str, norm: _BatchNorm, x: Tensor) -> None:
        """Change the statistics as much as those of the inputs changed: an uncut network stays as it is."""
        if self.turns.current not in self.begun or norm.running_mean is None or norm.running_var is None:
            return
        if name in self.moved:
            return
        moments: Moments = self.open.setdefault(name, Moments())
        moments.add(x)
        self.turns.meet(name, lambda: self._move_norm_statistics(name, norm))

    def _move_norm_statistics(self, name: str, norm: _BatchNorm) -> None:
        """Shift the statistics of a batch norm by what its input has changed."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        mean, variance = self.reference.norms[name]
        kept = self._kept_positions(f"{name}.running_mean", 0, len(mean)).to(mean.device)
        mean, variance = mean[kept], variance[kept]
        mean_now, variance_now = self.open.pop(name).result()
        norm.running_mean += (mean_now - mean).to(norm.running_mean)
        ratio = torch.where(variance > 1e-12, variance_now / variance.clamp_min(1e-12), 1.0)
        norm.running_var *= ratio.to(norm.running_var)

    def _solve_layer(self, name: str, layer: Any, x: Tensor) -> None:
        """Add what a layer reads and should give to its least squares, then solve it."""
        if self.turns.current not in self.begun:
            self.held.pop((self.turns.current, name), None)
            return
        record = self.reference.layers[name]
        filters = self._kept_positions(f"{name}.weight", 0, record.answers.shape[-1]).to(x.device)
        targets = record.answers[self._rows(record)].index_select(-1, filters)
        if record.reads is not None and layer.weight[0].numel() > self.reference.density.full_solve:
            self.held.pop((self.turns.current, name), None)
            self._solve_by_mixing(name, layer, record, x, targets, filters)
            return
        norm = self.modules.get(record.norm) if record.norm else None
        missing = self._missing_in_sum(name, record, filters, linear=isinstance(layer, nn.Linear))
        beside = None
        if record.partner is not None:
            beside = record.partner.answers[self._rows(record)].index_select(-1, filters)
        goal = find_goal(targets, norm, record.gate, missing=missing, beside=beside)
        self._solve_in_full(name, layer, record, x, goal, norm)

    def _solve_in_full(
        self, name: str, layer: Any, record: LayerRecord, x: Tensor, goal: Goal, norm: nn.Module | None
    ) -> None:
        """The full solve: every weight of a filter is an unknown; group by group."""
        groups = getattr(layer, "groups", 1)
        weight: Tensor = layer.weight
        unknowns, outputs = weight[0].numel(), weight.shape[0] // groups
        if self.ridge == 0 and record.rows < unknowns:
            self.left[name] = (
                f"it has {unknowns} unknowns and only {record.rows} equations: "
                f"give {self.reference.needed} inputs, or a ridge above 0"
            )
            return
        offset = layer.bias is not None or norm is not None
        make = partial(Fit, inputs=unknowns, outputs=outputs, intercept=offset, leading=(groups,))
        halves: tuple[Fit, Fit] = self.open.setdefault(name, (make(), make()))
        first = self._rows(record).start or 0
        for chunk, part in record.patches(layer, x, self._rows(record)):
            odd = (first + chunk.start) % 2  # every second of all inputs, however they are divided into parts
            for half, some in zip(halves, (slice(odd, None, 2), slice(1 - odd, None, 2)), strict=True):
                # (inputs, places, channels, kernel) -> (groups, rows, unknowns)
                grouped = part[some].reshape(-1, groups, unknowns).transpose(0, 1)
                targets, *within = (
                    values[chunk][some].reshape(-1, groups, outputs).transpose(0, 1)
                    for values in (goal.targets, *goal.within)
                )
                half.add(grouped, targets, (within[0], within[1]) if within else None)
        self.turns.meet(
            name, lambda: self._write_solved_weights(name, layer, record, norm, corrected=goal.corrected)
        )

    def _write_solved_weights(
        self, name: str, layer: Any, record: LayerRecord, norm: nn.Module | None, *, corrected: bool
    ) -> None:
        """Solve a layer, and the batch norm behind it, and write the weights."""
        weight: Tensor = layer.weight
        fit, held_out = self.open.pop(name)
        groups = getattr(layer, "groups", 1)
        start = weight.reshape(groups, weight.shape[0] // groups, -1).mT
        ridge = fit.best_ridge(held_out, start) if self.ridge is None else self.ridge
        fit.join(held_out)
        _check_fit_finite(name, fit)
        solved, offsets = fit.solve(start, ridge, self.reference.density.steps)
        if not bool(solved.isfinite().all()) or not bool(offsets.isfinite().all()):
            self.left[name] = f"its solution does not fit into {weight.dtype}"
            return
        weight.copy_(solved.mT.reshape(weight.shape))
        if layer.bias is not None:
            layer.bias.copy_(offsets.reshape(-1))
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None and norm.running_var is not None:
            assert record.norm is not None
            self.moved.add(record.norm)
            if layer.bias is None:
                norm.running_mean -= offsets.reshape(-1)
            if not corrected and not fit.by_intervals:
                # Least squares shrinks answers: the norm restores their variance. Not where the layer makes
                # up for what others lack: there the shrunken answer is the best one. Behind a ReLU it only
                # shrinks what nobody reads.
                norm.running_var *= fit.spread(solved).reshape(-1).to(norm.running_var)

    def _solve_by_mixing(
        self, name: str, layer: Any, record: LayerRecord, x: Tensor, targets: Tensor, filters: Tensor
    ) -> None:
        """For too many unknowns: express the original's input channels by those that stay, folded in."""
        assert record.reads is not None
        weight: Tensor = layer.weight
        if getattr(layer, "groups", 1) > 1:
            self.left[name] = "its groups are too wide to be solved"
            return
        original = self.reference.model.get_submodule(name).weight
        assert isinstance(original, Tensor)
        full, thin = original.shape[1], weight.shape[1]
        fit: Fit | None = self.open.get(name)
        if fit is None:
            fit = self.open[name] = Fit(inputs=thin, outputs=full, intercept=False)
        reads = record.reads[self._rows(record)]
        for chunk, part in record.patches(layer, x, self._rows(record)):
            fit.add(part[..., part.shape[-1] // 2].flatten(0, 1), reads[chunk].flatten(0, 1))

        def mix() -> None:
            _check_fit_finite(name, fit)
            start = torch.zeros(thin, full).to(weight)
            start[torch.arange(thin), self._kept_positions(f"{name}.weight", 1, full).to(start.device)] = 1.0
            mixture, _ = fit.solve(start, MIXING_RIDGE if self.ridge is None else self.ridge)
            chosen = original[filters].flatten(2)
            mixed = torch.einsum("ofk,tf->otk", chosen, mixture).reshape(weight.shape)
            self.open[name] = [mixed, 0.0]

        def choose() -> None:
            mixed, gain = self.open.pop(name)
            if gain >= 0:
                weight.copy_(mixed)
            else:
                self.left[name] = "mixing its channels would not bring it closer to the original"

        self.turns.meet(name, mix)
        mixed = self.open[name][0]
        gain = self._error_of_layer(layer, weight, record, x, targets) - self._error_of_layer(
            layer, mixed, record, x, targets
        )
        self.open[name][1] += gain
        self.turns.meet(f"{name}, mixed", choose)

    def _error_of_layer(
        self, layer: Any, weight: Tensor, record: LayerRecord, x: Tensor, targets: Tensor
    ) -> float:
        """The squared distance of a layer with these weights from its targets, for the running part."""
        total = 0.0
        for chunk, part in record.patches(layer, x, self._rows(record)):
            gap = targets[chunk] - part.flatten(2) @ weight.flatten(1).T
            gap = gap if layer.bias is None else gap - layer.bias
            total += float(gap.square().sum())
        return total


def _own_shapes(module: nn.Module | None) -> list[tuple[str, torch.Size]]:
    """Of what the module holds itself."""
    if module is None:
        return []
    own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    return [(name, tensor.shape) for name, tensor in own]


def _check_fit_finite(name: str, fit: Fit) -> None:
    if not fit.finite:
        raise InputError(
            f"{name} reads values that are not finite, or too large to be squared, after the cut; "
            "check weights and inputs"
        )
