"""What a criterion may look at to tell how much each filter matters."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.searching.importance.activations import Activations, gather_activations
from deeppruning.system.device import precision_of


@dataclass(frozen=True, eq=False)
class Evidence:
    """A trained network, its channel graph and, for criteria that look at answers, some images."""

    graph: ChannelGraph
    model: nn.Module
    images: ImageSet | None = None
    device: str = "cpu"
    seed: int = 0
    inputs: Any = None  # in place of images, for a network that is called with something else

    def generator(self) -> np.random.Generator:
        """Random numbers that follow from the seed alone."""
        return np.random.default_rng(self.seed)

    @cached_property
    def activations(self) -> Activations:
        """What the filters answer to the images; worked out once, however many criteria ask."""
        if self.images is None:
            raise InputError(
                "this criterion looks at what filters answer to images, and there are none: "
                "give them, Evidence(graph, model, images)"
            )
        return gather_activations(self.graph, self.images, self.device)

    def call(self, most: int) -> Call:
        """Some inputs as the network is called with them, evenly spread over those there are."""
        if self.images is not None:
            chosen = torch.arange(0, len(self.images), max(1, len(self.images) // most))
            batch = normalize(self.images.images[chosen], self.images.normalization)
            return onto(((batch.to(precision_of(self.model)),), {}), self.device)
        if self.inputs is None:
            raise InputError("this criterion looks at inputs, and there are none: give images or inputs")
        call = as_call(self.inputs)
        step = max(1, batch_size(call) // most)
        return onto(part_of(call, slice(None, None, step)), self.device)
