"""Records the layers of the original while it runs, part by part of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.hooks import RemovableHandle

from deeppruning.errors import InputError
from deeppruning.refitting.memory import MOST_UNKNOWNS, Density
from deeppruning.refitting.patches import Places, answers_at, patches_at
from deeppruning.refitting.readers import LAYERS, Readers
from deeppruning.refitting.records import LayerRecord, Moments, Partner


class Recorder:
    """Hooks on the original that record its layers while it runs, part by part."""

    def __init__(
        self,
        model: nn.Module,
        count: int,
        readers: Readers,
        generator: torch.Generator,
        density: Density,
    ) -> None:
        self.model, self.count, self.density = model, count, density
        self.readers, self.generator = readers, generator
        self.left: dict[str, str] = {}
        self.norms: dict[str, Moments] = {}
        self.means: dict[str, Any] = {}
        self._layers = {norm: layer for layer, norm in readers.norms.items()}
        self._held: dict[str, Tensor] = {}  # layer -> what its answer will be added to
        self._pieces: dict[str, list[LayerRecord]] = {}  # of each part
        self._inputs = count  # of the part that is running

    def begin_part(self, inputs: int) -> None:
        """Say how many inputs the next run has: a layer may see more rows, or fewer."""
        self._inputs = inputs

    def watch(self) -> list[RemovableHandle]:
        """Hook all layers and norms."""
        modules, handles = dict(self.model.named_modules()), []
        for name, anchor in self.readers.sums.items():
            handles += anchor.hold(modules, partial(self._held.__setitem__, name))
        for name, module in modules.items():
            if isinstance(module, (*LAYERS, _BatchNorm)):
                handles.append(module.register_forward_hook(partial(self._module_ends, name)))
        return handles

    def layers(self) -> dict[str, LayerRecord]:
        """The records of all layers that can be refitted."""
        for name, pieces in self._pieces.items():
            if len({piece.places.extents for piece in pieces}) > 1:
                self.left.setdefault(name, "what it reads has another form for another number of inputs")
        return {
            name: _joined_records(pieces) for name, pieces in self._pieces.items() if name not in self.left
        }

    def _module_ends(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Record a layer or batch norm that has just run."""
        if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            return
        self._add_output_mean(name, module, output)
        if isinstance(module, _BatchNorm):
            if self._layers.get(name, "") not in self._pieces:  # otherwise it is adapted with that layer
                self.norms.setdefault(name, Moments()).add(inputs[0])
            return
        other = self._held.pop(name, None)
        if name in self.left:
            return
        record = self._record_if_solvable(name, module, inputs[0], output)
        if record is None:
            return
        if other is not None:
            answers = answers_at(other, record.places, channels_last=isinstance(module, nn.Linear))
            record.partner = Partner(self.readers.sums[name], answers)
        self._pieces.setdefault(name, []).append(record)

    def _add_output_mean(self, name: str, module: nn.Module, output: Tensor) -> None:
        channels = output.dim() - 1 if isinstance(module, nn.Linear) else 1
        others = [dimension for dimension in range(output.dim()) if dimension != channels]
        mean = output.mean(others, dtype=torch.promote_types(output.dtype, torch.float32))
        self.means[name] = self.means.get(name, 0) + self._inputs / self.count * mean

    def _record_if_solvable(self, name: str, module: nn.Module, x: Tensor, y: Tensor) -> LayerRecord | None:
        """The record of a layer, or None with the reason why it is left as it is."""
        rank = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
        weight = module.weight
        assert isinstance(weight, Tensor)
        if isinstance(module, _ConvTransposeNd):
            self.left[name] = "it is a transposed convolution"
        elif rank and x.dim() != rank + 2:
            self.left[name] = "its input has no batch"
        elif not bool(self.means[name].isfinite().all()):
            raise InputError(f"{name} gives values that are not finite; check weights and inputs")
        elif weight.shape[1] > MOST_UNKNOWNS:
            self.left[name] = f"it reads {weight.shape[1]} channels, more than the {MOST_UNKNOWNS} solved for"
        else:
            return self._record_places(name, module, x, y)
        return None

    def _record_places(self, name: str, module: nn.Module, x: Tensor, y: Tensor) -> LayerRecord | None:
        """What a layer reads and answers at places that are drawn."""
        weight = module.weight
        assert isinstance(weight, Tensor)
        unknowns = weight[0].numel()
        linear = isinstance(module, nn.Linear)
        extents = tuple(y.shape[1:-1] if linear else y.shape[2:])
        places_per_row = -(-self.density.places(unknowns, self.count) * self._inputs // len(x))
        places = Places.draw(len(x), extents, places_per_row, self.generator)
        reads = None
        if unknowns > self.density.full_solve:
            patches = patches_at(module, x, places)
            reads = patches[..., patches.shape[-1] // 2].clone()
        answers = answers_at(y, places, channels_last=linear)
        if _answers_by_its_weight(module, x[:2], Places(places.numbers[:2], extents), answers[:2]):
            return LayerRecord(places, answers, reads)
        self.left[name] = "its answers are not just its weight times its input"
        return None


def _joined_records(pieces: Sequence[LayerRecord]) -> LayerRecord:
    """One record of all parts."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    places = Places(torch.cat([piece.places.numbers for piece in pieces]), first.places.extents)
    reads = [piece.reads for piece in pieces if piece.reads is not None]
    partners = [piece.partner for piece in pieces if piece.partner is not None]
    partner = None
    if len(partners) == len(pieces):
        partner = Partner(partners[0].anchor, torch.cat([each.answers for each in partners]))
    answers = torch.cat([piece.answers for piece in pieces])
    ends = list(accumulate(len(piece.answers) for piece in pieces))
    parts = [slice(first, last) for first, last in pairwise([0, *ends])]
    return LayerRecord(places, answers, torch.cat(reads) if reads else None, partner=partner, parts=parts)


def _answers_by_its_weight(module: Any, x: Tensor, places: Places, answers: Tensor) -> bool:
    """Whether a layer does what its type does; a user's own class may scale its weight or pad its input."""
    groups = getattr(module, "groups", 1)
    rows = patches_at(module, x, places)
    weight = module.weight.reshape(groups, module.weight.shape[0] // groups, -1).double()
    rows = rows.reshape(*rows.shape[:2], groups, -1).double()
    if rows.shape[-1] != weight.shape[-1]:
        return False
    expected = torch.einsum("npgu,gou->npgo", rows, weight).flatten(2)
    expected = expected if module.bias is None else expected + module.bias
    tolerance = 0.03 if answers.element_size() < 4 else 1e-3
    return bool((expected - answers).abs().max() <= tolerance * answers.abs().max() + 1e-6)
