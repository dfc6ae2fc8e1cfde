"""The optimiser of training, SGD with momentum, and its learning-rate schedules.

>>> [round(rate("cosine", 0.1, step, 4), 4) for step in range(4)]
[0.1, 0.0854, 0.05, 0.0146]
"""

import math
from inspect import unwrap

import torch
from torch import nn
from torch.optim import SGD

from deeppruning.config import SCHEDULES, TrainConfig
from deeppruning.errors import InputError, unknown

# Share of a one-cycle run in which the rate rises, and the fraction of the peak it starts from.
RISE = 0.25
START = 0.05


class PlainSGD(SGD):
    """`torch.optim.SGD` without the wrappers that only `torch.compile` needs.

    They import a compiler at the first step, which takes seconds in every worker process. The steps are
    torch's own, to the bit.
    """

    add_param_group = unwrap(SGD.add_param_group)
    state_dict = unwrap(SGD.state_dict)
    load_state_dict = unwrap(SGD.load_state_dict)
    zero_grad = unwrap(SGD.zero_grad)
    step = torch.no_grad()(unwrap(SGD.step))


def make_optimizer(model: nn.Module, config: TrainConfig, device: torch.device) -> SGD:
    """SGD for all parameters of a network that require gradients."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InputError("the model has no parameters to train; set requires_grad on some of them")
    optimizer = PlainSGD(
        trained,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True if device.type in ("cpu", "cuda") else None,
    )
    # SGD creates its momentum at the first step, and the fused form only for all parameters at once: a
    # layer skipped in that step (stochastic depth) would break it. Zeros give the same first step.
    for parameter in trained:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def rate(schedule: str, peak: float, step: int, steps: int) -> float:
    """The learning rate of `step`, counted from 0, out of `steps`.

    constant: always `peak`. cosine: falls from `peak` along half a cosine to 0 after the last step.
    onecycle: rises linearly from a twentieth of `peak` over the first quarter of the steps, then falls like
    cosine.
    """
    if schedule == "constant":
        return peak
    if schedule == "cosine":
        return peak * _half_cosine(step / steps)
    if schedule == "onecycle":
        rise = RISE * steps
        if step < rise:
            return peak * (START + (1 - START) * step / rise)
        return peak * _half_cosine((step - rise) / (steps - rise))
    raise unknown("schedule", schedule, SCHEDULES)


def _half_cosine(progress: float) -> float:
    """1 at progress 0, 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))
