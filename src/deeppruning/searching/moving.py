"""A run that is resumed with another processor or torch version, where results differ by rounding.

Other instructions add in another order, so weights or images that are computed again differ in their last
bits. Then a hash differs though nothing else does; a sketch of the values shows whether they are the same.

>>> sketch({"weight": torch.tensor([3.0, 4.0])})
{'weight': [5.0, 5.161209]}
>>> alike(sketch({"a": torch.ones(9)}), sketch({"a": torch.ones(9) * (1 + 1e-7)}))
True
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.history import History
from deeppruning.searching.events import Observer, Remark
from deeppruning.system.versions import computed_by, versions_line

NEAR = 1e-5  # of a tensor's length: far above rounding, far below what one step of training changes
DECIDING = ("torch", "processor")  # what the last bits of results depend on
REMEDY = "weights that are drawn or trained anew differ from processor to processor: load them from a file"
CHUNK = 1 << 20  # values at a time

Sketch = dict[str, list[float]]


def sketch(tensors: Mapping[str, Tensor]) -> Sketch:
    """For each tensor its norm, and one sum that depends on every value and its position."""
    longest = max((2 * tensor.numel() for tensor in tensors.values()), default=0)  # a complex value is two
    waves = torch.arange(min(CHUNK, longest), dtype=torch.float64).cos_()
    sketches = {}
    for name, tensor in tensors.items():
        squares = weighted = 0.0
        flat = tensor.detach().flatten()
        plain = torch.view_as_real(flat).flatten() if flat.is_complex() else flat
        for place, part in enumerate(torch.split(plain, CHUNK)):
            values = torch.nan_to_num(part.to("cpu", torch.float64), 0.0, 1.0, -1.0)  # a mask may hold -inf
            squares += float(values @ values)
            weighted += math.cos(place) * float(values @ waves[: len(values)])
        sketches[name] = [round(math.sqrt(squares), 6), round(weighted, 6)]
    return sketches


def alike(recorded: Sketch, given: Sketch) -> bool:
    """Whether two sketches are of the same values except for rounding."""
    return recorded.keys() == given.keys() and all(
        abs(then - now) <= NEAR * max(1e-1, abs(recorded[name][0]))
        for name in recorded
        for then, now in zip(recorded[name], given[name], strict=True)
    )


def is_near(run: RunFolder, fact: facts.Fact[Sketch], tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors differ from those a run was started with by rounding alone."""
    recorded = run.history.get_fact(fact)
    return recorded is not None and has_moved(run.history) and alike(recorded, sketch(tensors))


def has_moved(history: History) -> bool:
    """Whether a run was started with another processor or torch, whose results differ in their last bits."""
    started = history.get_fact(facts.VERSIONS)
    return started is not None and not _same_versions(started, computed_by())


def tell_of_move(run: RunFolder, observer: Observer) -> None:
    """Record the processor and versions that continue a run, with a remark if they differ from the last."""
    started, now = run.history.get_fact(facts.VERSIONS), computed_by()
    if started is None or run.history.get_fact(facts.FINISHED):
        return  # there is nothing left to compute
    since = run.history.get_fact(facts.CONTINUED, [])
    if not _same_versions([started, *since][-1], now):
        run.history.set_fact(facts.CONTINUED, [*since, now])
        before, after = versions_line([started, *since][-1]), versions_line(now)
        text = (
            f"note: this run was computed by {before} so far and continues with {after}. All its results are "
            "kept. Further results may differ in their last digits, and so may the candidates and selected "
            "networks from those that the first machine would have found"
        )
        observer(Remark("processor", text))


def _same_versions(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    return all(first.get(name) == second.get(name) for name in DECIDING)
