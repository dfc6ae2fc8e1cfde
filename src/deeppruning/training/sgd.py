"""SGD that starts at once: torch's own imports a compiler at its first step, seconds in every worker process.

The steps are torch's, to the bit; only the wrappers that import `torch._dynamo` to switch it off are absent.
"""

from inspect import unwrap

import torch
from torch.optim import SGD


class PlainSGD(SGD):
    """`torch.optim.SGD` without what only `torch.compile` needs."""

    add_param_group = unwrap(SGD.add_param_group)
    state_dict = unwrap(SGD.state_dict)
    load_state_dict = unwrap(SGD.load_state_dict)
    zero_grad = unwrap(SGD.zero_grad)
    step = torch.no_grad()(unwrap(SGD.step))
