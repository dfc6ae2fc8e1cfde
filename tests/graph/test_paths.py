"""Whatever goes, the outputs of a thin network depend on its inputs as those of the full network do."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.models import create_model, list_models
from graph_checks import call, filled
from graph_networks import NETWORKS, Net, block, head
from graph_networks.parts import Apply

pytestmark = pytest.mark.usefixtures("one_thread")

SHARES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def reaches(model: nn.Module, example: Any) -> list[list[bool]]:
    """Input by input, which outputs it reaches: what is no number stays none whatever is done with it."""
    found = []
    for given in tensors_in(example):
        blank = tree_map(lambda x, given=given: torch.full_like(x, torch.nan) if x is given else x, example)
        with torch.no_grad():
            found.append([bool(out.isnan().any()) for out in tensors_in(call(model.eval(), blank))])
    return found


def check_inputs_reach_outputs(model: nn.Module, example: Any, graph: ChannelGraph) -> None:
    generator = np.random.default_rng(3)
    population = np.stack([generator.random(graph.num_genes) < share for share in SHARES])
    for group in graph.groups:  # all but one of the branches gone, and no other filter
        if group.removable:
            population = np.vstack([population, np.isin(np.arange(graph.num_genes), group.genes)])
    repaired = graph.repair(population[:20])
    assert np.array_equal(graph.repair(repaired), repaired)
    due = reaches(model, example)
    for genome in repaired:
        assert reaches(graph.prune(genome), example) == due


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_a_network_of_the_zoo_depends_on_its_input_whatever_goes(name):
    model = create_model(name, image_size=8)
    example = torch.zeros(1, 3, 8, 8)
    check_inputs_reach_outputs(model, example, ChannelGraph(model, example, depth=True))


SMALL = ("residual_pad_in_lambda_module", "residual_pad_inline_literal", "shuffle_unit", "several_inputs")


@pytest.mark.parametrize(
    "name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_a_small_network_depends_on_its_inputs_whatever_goes(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    example = filled(example)
    if all(all(outputs) for outputs in reaches(model, example)):  # comparisons hide what is no number
        check_inputs_reach_outputs(model, example, ChannelGraph(model, example, depth=True))


def test_only_what_leads_a_padded_shortcut_through_comes_back():
    model, example = create_model("resnet20", image_size=8), torch.zeros(1, 3, 8, 8)
    graph = ChannelGraph(model, example, depth=True)
    check_inputs_reach_outputs(model, example, graph)
    kept = {name: stay for name, (stay, _) in graph.widths(np.zeros(graph.num_genes, dtype=bool)).items()}
    # Shortcuts bring channel 0 of the first stage to place 8 of the second and 24 of the third; each stage
    # keeps its channel 0 besides, as the lowest.
    assert kept["conv1"] == 1
    assert kept["layer2.0.conv1"] == kept["layer3.0.conv1"] == 0
    assert len(graph.repair(np.zeros(graph.num_genes, dtype=bool)).nonzero()[0]) == 1 + 2 + 2


def test_a_layer_on_padded_channels_keeps_one_that_is_no_padding():
    pad = Apply(lambda x: F.pad(x, (0, 0, 0, 0, 4, 0)))
    parts = {"stem": block(3, 4), "pad": pad, "deep": block(8, 8, groups=8), "head": head(8)}
    model = Net(lambda net, x: net.head(net.deep(net.pad(net.stem(x)))), **parts)
    example = torch.zeros(2, 3, 8, 8)
    graph = ChannelGraph(model, example)
    check_inputs_reach_outputs(model, example, graph)
    nothing = graph.repair(np.zeros(graph.num_genes, dtype=bool))
    assert graph.verify(nothing).holds and nothing.sum() == 3
