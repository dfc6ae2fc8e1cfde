"""Numbers that are infinite or not a number: found where they arise, refused where they would be kept.

>>> broken = nn.Linear(2, 1)
>>> _ = broken.weight.data.fill_(float("nan"))
>>> not_finite(learnt(broken))
['weight']
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.errors import Diverged

LISTED_AT_MOST = 3


def learnt(model: nn.Module) -> dict[str, Tensor]:
    """What training has left in a network: its parameters and the statistics of its batch norms.

    Other buffers are not among them, for masks of attention hold infinities on purpose.
    """
    found: dict[str, Tensor] = dict(model.named_parameters())
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            prefix = f"{name}." if name else ""
            found |= {f"{prefix}{key}": buffer for key, buffer in module.named_buffers(recurse=False)}
    return found


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those that hold an infinity or something that is not a number."""
    names = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    # One look for all: each would make a GPU wait for its queue to run dry.
    looked_at = [torch.isfinite(tensors[name].detach()).all() for name in names]
    if not looked_at or bool(torch.stack([fine.to(looked_at[0].device) for fine in looked_at]).all()):
        return []
    return [name for name, fine in zip(names, looked_at, strict=True) if not bool(fine)]


def check_learnt(model: nn.Module, what: str) -> None:
    """Raise Diverged, saying `what` has weights that are not finite, if this network has."""
    names = not_finite(learnt(model))
    if names:
        raise Diverged(f"{what} has weights that are not finite (nan or inf): {listed(names)}")


def check_outputs_finite(outputs: Tensor) -> None:
    """Raise Diverged unless all outputs of a network are numbers: any argmax of nan is class 0."""
    fine = torch.isfinite(outputs).flatten(1).all(dim=1)
    if not bool(fine.all()):
        raise Diverged(
            f"the outputs of the network are not finite (nan or inf) for {int((~fine).sum())} of "
            f"{len(outputs)} images; check its weights and the values of the images"
        )


def listed(names: list[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - LISTED_AT_MOST} more" if len(names) > LISTED_AT_MOST else ""
    return f"{', '.join(names[:LISTED_AT_MOST])}{more}"
