"""What a criterion may look at to tell how much each filter matters."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import nn

from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.importance.activations import Activations, gather_activations


@dataclass(frozen=True, eq=False)
class Evidence:
    """A trained network, its channel graph and, for criteria that look at answers, some images."""

    graph: ChannelGraph
    model: nn.Module
    images: ImageSet | None = None
    device: str = "cpu"
    seed: int = 0

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
