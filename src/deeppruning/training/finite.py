"""Find weights and outputs that are infinite or not a number.

>>> broken = nn.Linear(2, 1)
>>> _ = broken.weight.data.fill_(float("nan"))
>>> not_finite(learnt(broken))
['weight']
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.amounts import listed
from deeppruning.errors import Diverged


def learnt(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that training changes: parameters and the statistics of batch norms.

    Other buffers are left out, because attention masks hold infinities on purpose.
    """
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            prefix = f"{name}." if name else ""
            tensors |= {f"{prefix}{key}": buffer for key, buffer in module.named_buffers(recurse=False)}
    return tensors


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors with values that are infinite or not a number."""
    names = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    # One check for all: each makes a GPU wait until its queue is empty.
    checks = [torch.isfinite(tensors[name].detach()).all() for name in names]
    if not checks or bool(torch.stack([fine.to(checks[0].device) for fine in checks]).all()):
        return []
    return [name for name, fine in zip(names, checks, strict=True) if not bool(fine)]


def check_learnt(model: nn.Module, what: str) -> None:
    """Raise Diverged if this network, called `what` in the message, has weights that are not finite."""
    names = not_finite(learnt(model))
    if names:
        raise Diverged(f"{what} has weights that are not finite (nan or inf): {listed(names)}")


def check_outputs_finite(outputs: Tensor) -> None:
    """Raise Diverged unless all outputs of a network are finite: the argmax of nan is class 0."""
    fine = torch.isfinite(outputs).flatten(1).all(dim=1)
    if not bool(fine.all()):
        raise Diverged(
            f"the outputs of the network are not finite (nan or inf) for {int((~fine).sum())} of "
            f"{len(outputs)} images; check its weights and the values of the images"
        )
