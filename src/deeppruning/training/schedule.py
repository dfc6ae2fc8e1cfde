"""The learning rate of each step as a plain function of the step's number.

>>> [round(rate("cosine", 0.1, step, 4), 4) for step in range(4)]
[0.1, 0.0854, 0.05, 0.0146]
"""

import math

from deeppruning.config import SCHEDULES
from deeppruning.errors import unknown

# Share of a one-cycle run in which the rate rises, and the fraction of the peak it starts from.
RISE = 0.25
START = 0.05


def rate(schedule: str, peak: float, step: int, steps: int) -> float:
    """The rate of `step` (from 0) of `steps` in all.

    constant: `peak` throughout. cosine: falls from `peak` along half a cosine, reaching 0 after the
    last step. onecycle: rises in a straight line from a twentieth of `peak` over the first quarter of
    the steps, then falls as cosine does.
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
