"""What the channel graph must find in networks whose ties, genes and frozen layers are known by hand."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deeppruning.graph import ChannelGraph
from deeppruning.graph.build import prefer
from deeppruning.graph.proof.twin import Stage
from deeppruning.models import create_model
from graph_checks import every_nth
from graph_networks import NETWORKS, Net, block, conv, head

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGE = torch.zeros(1, 3, 16, 16)


def graph_of(name: str, **options) -> ChannelGraph:
    model, example = NETWORKS[name]()
    return ChannelGraph(model, example, **options)


def ties(graph: ChannelGraph) -> dict[tuple[str, ...], int]:
    """Layers that go together -> how many genes decide them."""
    return {group.layers: len(group.genes) for group in graph.groups if group.prunable}


def frozen(graph: ChannelGraph) -> dict[str, tuple[int, str]]:
    """Layer -> frozen filters and the first reason."""
    found = [group for group in graph.groups if not group.prunable]
    return {group.layers[0]: (group.filters, group.reasons[0]) for group in found}


@pytest.mark.parametrize("shortcut", ["pad", "conv"])
def test_resnet_has_the_two_strings_of_the_paper(shortcut):
    graph = ChannelGraph(create_model("resnet20", shortcut=shortcut, image_size=16), IMAGE)
    assert graph.num_genes == (16 + 32 + 64) + 3 * (16 + 32 + 64)
    assert all(group.prunable for group in graph.groups)
    second = [group for group in graph.groups if group.string == "second"]
    first = [group for group in graph.groups if group.string == "first"]
    assert [len(group.genes) for group in second] == [16, 32, 64]
    assert all(re.fullmatch(r"layer\d\.\d\.conv1", group.layers[0]) for group in first)
    assert len(first) == 9 and all(len(group.layers) == 1 for group in first)
    expected = ["conv1", *(f"layer1.{i}.conv2" for i in range(3))]
    assert sorted(second[0].layers) == sorted(expected)
    extra = ["layer2.0.shortcut.0"] if shortcut == "conv" else []
    assert sorted(second[1].layers) == sorted([*(f"layer2.{i}.conv2" for i in range(3)), *extra])


def test_densenet_has_bottlenecks_and_wide_layers_and_the_rest_is_selectable():
    model = create_model("densenet50", image_size=16)
    graph = ChannelGraph(model, IMAGE, exclude=model.paper_excludes)
    sizes: dict[str, int] = {}
    for group in graph.groups:
        sizes[group.string] = sizes.get(group.string, 0) + len(group.genes)
    assert sizes == {"bottleneck": 21 * 48, "3x3": 21 * 12, "": 0}
    reasons = frozen(graph)
    assert set(reasons) == {"conv1", "trans1.conv1", "trans2.conv1"}
    assert reasons["trans1.conv1"][1] == "excluded by pattern 'trans*.conv1'"
    width = 24 + 7 * 12
    rest = 24 + width // 2 + (width // 2 + 7 * 12) // 2
    assert ChannelGraph(model, IMAGE).num_genes == 21 * 60 + rest


def test_vgg_is_one_plain_string():
    graph = ChannelGraph(create_model("vgg16", image_size=16), IMAGE)
    assert {group.string for group in graph.groups} == {"plain"}
    assert graph.num_genes == 2 * 64 + 2 * 128 + 3 * 256 + 6 * 512


EXPECTED_TIES = {
    "residual_identity": {("stem.0", "body.1"): 8, ("body.0.0",): 6, ("tail.0",): 6},
    "residual_projection": {("stem.0",): 8, ("short", "body.1"): 10, ("body.0.0",): 6, ("tail.0",): 6},
    "residual_pad_in_lambda_module": {("stem.0",): 8, ("body.0.0",): 6, ("body.1",): 12, ("tail.0",): 6},
    "residual_pad_module_at_two_widths": {("stem.0", "first.0", "second.0"): 4, ("tail.0",): 6},
    "residual_pad_inline_literal": {("stem.0", "body.1"): 8, ("body.0.0",): 6, ("tail.0",): 6},
    "cat_with_itself": {("stem.0",): 6, ("tail.0",): 6},
    "cat_dense": {("stem.0",): 4, ("layers.0.1",): 3, ("layers.1.1",): 3, ("layers.2.1",): 3, ("tail.0",): 6},
    "unet": {("down.0",): 6, ("deep.0",): 8, ("up",): 5},
    "depthwise": {("0.0", "1.0"): 8, ("2.0",): 6},
    "depthwise_multiplier": {("0.0", "1"): 6, ("3.0",): 6},
    "grouped_many": {("0.0", "1.0"): 8, ("2.0",): 6},
    "grouped_few": {("0.0",): 6, ("1.0",): 8, ("2.0",): 6},
    "looks_depthwise_one_channel": {("2",): 8, ("6",): 6},
    "channel_shuffle_module": {("0.0",): 8, ("2.0",): 6},
    "chunk_halves": {("stem.0",): 4, ("tail.0",): 6},
    "pixel_shuffle": {("0.0",): 8, ("1",): 4},
    "gate_by_convolutions": {("stem.0", "gate.3"): 8, ("gate.1",): 4, ("tail.0",): 6},
    "gate_by_linear_layers": {("stem.0", "gate.2"): 8, ("tail.0",): 6},
    "group_norm_many": {("0",): 4, ("3.0",): 6},
    "group_norm_few": {("0",): 8, ("3.0",): 6},
    "group_norm_one": {("0",): 8, ("3.0",): 6},
    "module_called_twice": {("stem.0", "same"): 8, ("tail.0",): 6},
    "shared_weights": {("stem.0", "one"): 8, ("tail.0",): 6},
    "auxiliary_head_in_training": {("stem.0",): 8, ("body.0",): 6, ("aux.0.0",): 4},
    "convnext_block": {("stem.0", "deep", "narrow"): 8, ("tail.0",): 6},
    "attention": {("stem.0", "back"): 8, ("tail.0",): 6},
    "weight_times_mask": {("0.0",): 8, ("1",): 6, ("3.0",): 4},
    "weight_times_mask_depthwise": {("0.0", "1"): 8, ("3.0",): 4},
    "weight_pruned_by_torch": {("0.0",): 8, ("1",): 6, ("3.0",): 4},
    "weight_scaled_by_filter": {("stem.0",): 8, ("body",): 6, ("tail.0",): 6},
    "weight_of_linear_masked": {("stem.0",): 8, ("tail.0",): 6},
    "weight_merged_of_two_kernels": {("stem.0",): 8, ("wide",): 6, ("tail.0",): 6},
    "weight_merged_the_other_way_round": {("stem.0",): 8, ("wide",): 6, ("tail.0",): 6},
    "blur_by_one_kernel_for_all": {("stem.0",): 8, ("tail.0",): 6},
    "blur_by_a_repeated_kernel": {("stem.0",): 8, ("tail.0",): 6},
    "position_embedding_resampled": {("stem.0",): 8, ("tail.0",): 6},
    "circular_padding_inside": {("0.0",): 8, ("1",): 6, ("3",): 4},
    "forward_in_inference_mode": {("body.0.0",): 8, ("body.1.0",): 6, ("body.2",): 4},
    "weight_norm": {("0",): 8, ("2",): 6},
    "weight_norm_depthwise": {("0.0", "1"): 8, ("3.0",): 4},
    "weight_parametrised": {("0.0", "1"): 8, ("3.0",): 4},
    "weight_standardised": {("body",): 6, ("tail.0",): 6},
    "weight_standardised_depthwise": {("0.0", "1"): 8, ("3.0",): 4},
    "einsum_pointwise": {("stem.0",): 8, ("tail.0",): 6},
    "einsum_parameter_first": {("stem.0",): 8, ("tail.0",): 6},
    "einsum_masked": {("stem.0",): 8, ("tail.0",): 6},
    "einsum_heads": {("stem.0",): 8, ("tail.0",): 6},
    "einsum_scale": {("stem.0",): 8, ("tail.0",): 6},
    "einsum_to_one_map": {("stem.0",): 8, ("tail.0",): 6},
    "layer_norm_by_hand": {("stem.0",): 8, ("tail.0",): 6},
    "response_norm": {("stem.0",): 8, ("tail.0",): 6},
    "root_mean_square_norm": {("stem.0",): 8, ("tail.0",): 6},
    "variance_over_channels_and_space": {("stem.0",): 8, ("tail.0",): 6},
    "unit_length_over_channels": {("stem.0",): 8, ("tail.0",): 6},
    "map_spread_over_channels": {("stem.0",): 8, ("tail.0",): 6},
    "mean_over_channels_of_another": {("stem.0",): 8, ("tail.0",): 6},
}


@pytest.mark.parametrize("name", every_nth(6, EXPECTED_TIES))
def test_layers_go_together_exactly_as_they_must(name):
    assert ties(graph_of(name)) == EXPECTED_TIES[name]


EXPECTED_FROZEN = {
    "attention_reshaped_by_the_width_it_read": (
        "stem.0", 8, "mm in project: a size or order is written into the code",
    ),
    "unknown_operation": ("stem.0", 8, "_fft_c2c in the network's forward is not understood"),
    "view_literal": ("body.0", 12, "view in forward: a size or order is written into the code"),
    "split_unequal": ("stem.0", 8, "split_with_sizes in forward: a size or order is written into the code"),
    "residual_pad_inline_literal": (
        "body.1", 4, "constant_pad_nd in forward: a size or order is written into the code",
    ),
    "spatial_attention_map": ("stem.0", 8, "amax in the network's forward mixes channels"),
    "local_response_norm": ("0", 8, "avg_pool3d in 1 mixes channels"),
    "multi_head_attention": ("stem.0", 8, "transpose in mix: a size or order is written into the code"),
    "last_channel_picked": (
        "stem.0", 1, "a single channel is spread over others by mul in the network's forward",
    ),
    "dataclass_output": ("stem.0", 8, "the network's output"),
    "object_output": ("body.0", 6, "the network's output"),
    "feature_output": ("stem.0", 8, "the network's output"),
    "looks_depthwise_one_channel": ("4", 1, "the only channel of 4: one must stay"),
    "depthwise_on_input": ("0", 6, "the network's input"),
    "weight_norm_of_all": (
        "1", 6,
        "norm in 1.parametrizations.weight.0 takes 1.parametrizations.weight.original1 together along "
        "dimension 0",
    ),
    "weight_standardised_by_variance": (
        "stem.0", 8,
        "var_mean in the network's forward takes body.weight together along dimension 1",
    ),
    "weight_standardised_by_batch_norm": (
        "0.0", 8,
        "native_batch_norm in 1 takes 1.weight together along dimension 1",
    ),
    "weight_row_of_another": ("body", 6, "select in the network's forward picks from table"),
    "weight_view_literal": ("body", 6, "view in forward: a size or order is written into the code"),
    "einsum_summed_weight": ("stem.0", 8, "bmm in the network's forward uses a part of mix"),
    "gate_by_mean_over_channels": ("stem.0", 8, "mean in the network's forward mixes channels"),
    "mean_over_channels_of_another": ("other.0", 8, "mean in the network's forward mixes channels"),
    "mean_over_channels_added_to_a_layer": ("stem.0", 8, "mean in the network's forward mixes channels"),
    "mean_over_channels_read_by_a_layer": ("stem.0", 8, "mean in the network's forward mixes channels"),
    "mean_over_channels_as_output": ("tail.0", 6, "mean in the network's forward mixes channels"),
    "unbiased_variance_over_channels": ("stem.0", 8, "var in the network's forward mixes channels"),
    "map_spread_over_literal_channels": (
        "stem.0", 8, "mul in forward: a size or order is written into the code",
    ),
    "weight_spectral_norm": ("1", 6, "mv in 1.parametrizations.weight.0 is not understood"),
    "scale_part_of_parameter": ("stem.0", 8, "only a part of scale is used at mul in the network's forward"),
    "embedded_constants": ("stem.0", 8, "linspace in the network's forward counts positions"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED_FROZEN)
def test_what_is_frozen_names_the_operation_and_the_layer(name):
    layer, filters, reason = EXPECTED_FROZEN[name]
    graph = graph_of(name)
    assert frozen(graph)[layer] == (filters, reason)
    line = next(line for line in str(graph).splitlines() if line.startswith(f"{layer} "))
    assert reason in line
    assert sum(group.prunable for group in graph.groups) >= 1  # the rest of the network stays free


def test_layers_are_excluded_by_pattern_and_by_type():
    graph = graph_of("unet", exclude=["de*"])
    assert frozen(graph)["deep.0"] == (8, "excluded by pattern 'de*'")
    graph = graph_of("unet", exclude_types=[nn.ConvTranspose2d])
    assert frozen(graph)["up"] == (5, "excluded by type ConvTranspose2d")
    assert graph.num_genes == 6 + 8


def test_linear_layers_are_pruned_on_request_only():
    assert graph_of("flatten_map_into_linear").num_genes == 8
    graph = graph_of("flatten_map_into_linear", prune_linear=True)
    assert graph.num_genes == 8 + 7
    thin = graph.prune(np.arange(15) % 2 == 0)
    assert tuple(thin[3].weight.shape) == (4, 4 * 16)
    assert graph.verify(np.arange(15) % 2 == 0).holds


WITH_LINEAR = ("linear_output_as_map", "linear_output_joined_as_map", "flatten_map_into_linear")


@pytest.mark.parametrize(
    "name", [name if name in WITH_LINEAR else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_pruning_linear_layers_costs_no_filters(name):
    def free(graph: ChannelGraph) -> dict[str, int]:
        return {layer: int((np.array(genes) >= 0).sum()) for layer, genes in graph.layer_genes().items()}

    torch.manual_seed(0)
    without, graph = free(graph_of(name)), graph_of(name, prune_linear=True)
    assert without == {layer: count for layer, count in free(graph).items() if layer in without}
    assert not any("linear layers" in note for note in graph.notes)
    assert graph.verify(np.random.default_rng(0).random(graph.num_genes) < 0.5).holds


def test_a_plan_that_freezes_filters_for_linear_layers_is_not_taken():
    plain, whole = (graph_of("linear_output_as_map", prune_linear=linear) for linear in (False, True))
    assert prefer(plain._built, whole._built) is whole._built
    worse = graph_of("linear_output_as_map", prune_linear=True, exclude=["up"])
    chosen = prefer(plain._built, worse._built)
    assert chosen.plan is plain._built.plan
    assert chosen.notes == ["linear layers are not pruned: that would freeze filters of up"]
    assert plain.notes == []


def test_min_channels_and_round_to_are_kept():
    graph = graph_of("plain_chain", min_channels=3)
    assert graph.widths(np.zeros(14, dtype=bool)) == {"0.0": (3, 8), "2.0": (3, 6)}
    assert (
        graph.repair(np.zeros(14, dtype=bool)).tolist() == [True] * 3 + [False] * 5 + [True] * 3 + [False] * 3
    )
    graph = graph_of("plain_chain", round_to=4)
    generator = np.random.default_rng(0)
    for genome in graph.repair(generator.random((20, 14)) < 0.5):
        assert graph.widths(genome)["0.0"][0] in (4, 8)
        assert graph.widths(genome)["2.0"][0] in (4, 6)  # six filters: a multiple of four, or all


def test_round_to_holds_where_one_gene_decides_two_filters():
    graph = graph_of("depthwise_multiplier", round_to=4)
    for genome in np.random.default_rng(0).random((20, graph.num_genes)) < 0.4:
        widths = graph.widths(genome)
        assert all(kept % 4 == 0 or kept == full for kept, full in widths.values())
        assert widths["1"][0] == 2 * widths["0.0"][0]


def test_a_population_is_priced_as_its_members_are():
    graph = graph_of("cat_inception")
    population = np.random.default_rng(0).random((30, graph.num_genes)) < 0.3
    assert graph.flops(population).tolist() == [graph.flops(genome) for genome in population]
    assert graph.params(population).tolist() == [graph.params(genome) for genome in population]
    assert graph.flops(population[:0]).shape == (0,)


def test_what_a_re_indexed_module_runs_is_paid_at_full_width():
    graph = graph_of("blur_of_fixed_width")
    assert graph.num_genes == 8 + 6
    due = 64 * (27 * 8 + 9 * 8 + 72 * 6) + 6 * 5
    assert graph.flops(graph.full_genome()) == due == 46_110
    assert graph.flops(np.arange(14) < 4) == 64 * (27 * 4 + 9 * 8 + 72 * 1) + 1 * 5


def test_a_layer_that_reads_a_parameter_is_paid_by_its_own_weights():
    graph = graph_of("parameter_read_by_layers")
    first, second = 64 * 72 * 8, 64 * 72 * 6  # once for the whole batch of two, as is the linear layer
    rest = 2 * (64 * 27 * 6 + 6 * 5)
    assert graph.flops(graph.full_genome()) * 2 == first + second + 10 * 8 * 6 + rest
    genome = np.arange(graph.num_genes) % 2 == 0
    widths = {name: kept for name, (kept, _) in graph.widths(genome).items()}
    assert widths == {"linear": 3, "first": 4, "second": 3, "stem": 3}
    assert graph.flops(genome) * 2 == 64 * 72 * 4 + 64 * 36 * 3 + 10 * 8 * 3 + 2 * (64 * 27 * 3 + 3 * 5)


def test_one_image_costs_the_same_in_any_batch():
    model = nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 2))
    due = 64 * (27 * 8 + 72 * 2)
    for example in (torch.zeros(3, 8, 8), torch.zeros(1, 3, 8, 8), torch.zeros(5, 3, 8, 8)):
        graph = ChannelGraph(model, example)
        assert graph.flops(graph.full_genome()) == due


def test_one_image_costs_the_same_whatever_comes_with_it_and_however_it_is_read():
    first, second = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.randn(2, 8, 3, 3))

    def run(net, x, numbers=None):
        x = x.flatten(0, 1) if x.ndim == 5 else x
        x = F.conv2d(F.relu(F.conv2d(x, net.first, padding=1)), net.second, padding=1)
        return x if numbers is None else x + numbers.sum()

    model, due = Net(run, first=first, second=second), 64 * (27 * 8 + 72 * 2)
    for colours in (torch.zeros(3, 8, 8), torch.zeros(1, 3, 8, 8), torch.zeros(5, 3, 8, 8)):
        for example in (colours, {"numbers": torch.zeros(4), "x": colours}):
            graph = ChannelGraph(model, example)
            assert graph.flops(graph.full_genome()) == due
    clips = ChannelGraph(model, torch.zeros(2, 6, 3, 8, 8))
    assert clips.flops(clips.full_genome()) == 6 * due


def test_the_table_counts_genes_and_filters():
    graph = graph_of("depthwise")
    lines = str(graph).splitlines()
    assert lines[0] == "ChannelGraph of Sequential: 14 genes decide 22 of 22 filters (100.0 %)"
    full = graph.full_genome()
    assert lines[1] == f"{graph.flops(full):,} multiply-adds, {graph.params(full):,} parameters"
    assert len(lines) == 4 + 3


def test_the_table_has_filters_and_how_many_of_them_are_prunable_side_by_side():
    graph = graph_of("last_channel_picked")  # one of the stem's eight filters is frozen
    lines = [line.split() for line in str(graph).splitlines()[3:]]
    assert lines[0] == ["layer", "kernel", "filters", "prunable", "group", "string"]
    assert lines[1][:4] == ["stem.0", "3x3", "8", "7"]
    table = str(graph_of("plain_chain", exclude=["0.0"])).splitlines()
    assert table[0] == "ChannelGraph of Sequential: 6 genes decide 6 of 14 filters (42.9 %)"
    assert table[4].split()[:4] == ["0.0", "3x3", "8", "0"]
    assert table[5].split()[:4] == ["2.0", "3x3", "6", "6"]


def chain(depth: int, literal: bool) -> nn.Module:
    """A chain of blocks, each with a pad of literal size in a module of its own, or nothing of the kind."""

    class Pad(nn.Module):
        def forward(self, x):
            return nn.functional.pad(x, (0, 0, 0, 0, 1, 1)) if literal else x

    extra = 2 if literal else 0
    layers = [nn.Sequential(conv(4 + extra, 4), Pad()) for _ in range(depth)]
    return nn.Sequential(conv(3, 4 + extra), *layers, head(4 + extra))


@pytest.fixture
def traced(monkeypatch):
    """What has been decided about a network each time it is traced: one entry a round of the build."""
    seen = []
    trace = Stage.trace
    monkeypatch.setattr(
        Stage, "trace", lambda stage, decisions: seen.append(decisions) or trace(stage, decisions)
    )
    return seen


@pytest.mark.parametrize("literal", [False, True])
def test_building_does_not_take_more_rounds_for_deeper_networks(literal, traced):
    rounds, records = [], []
    for depth in (4, 16):
        traced.clear()
        built = ChannelGraph(chain(depth, literal), torch.zeros(1, 3, 8, 8))._built
        rounds.append(len(traced))
        records.append(len(built.records))
    assert rounds[0] == rounds[1] <= 2
    assert records[1] < 4 * records[0]


@pytest.mark.parametrize(
    "literal",
    [lambda x: x.view(-1, 4, 8, 8), lambda x: torch.cat(torch.split(x, 2, 1), 1)],
    ids=["view", "split"],
)
def test_independent_literal_sizes_are_settled_in_the_same_round(literal, traced):
    def run(net, x):
        for layer in net.layers:
            x = literal(layer(x))
        return net.head(x)

    def built(depth: int) -> ChannelGraph:
        layers = nn.ModuleList(block(4 if i else 3, 4) for i in range(depth))
        return ChannelGraph(Net(run, layers=layers, head=head(4)), torch.zeros(2, 3, 8, 8))

    deep = built(16)
    assert len(traced) <= 5  # by luck a fault may not show at the first genome that is tried
    assert deep.num_genes == 0


def test_operations_that_hold_no_gene_are_not_taken_for_the_cause(traced):
    """Twelve operations lie between the width that is read and the reshape that fails for it."""
    graph = graph_of("attention_reshaped_by_the_width_it_read")
    assert len(traced) <= 2
    assert graph.num_genes == 6


def test_a_layer_whose_width_is_used_elsewhere_is_found_by_halving():
    """What fails comes before the layer whose width it reads: no operation near it can be blamed."""

    def run(net, x):
        return net.head(net.layers(x[:, : net.layers[3].out_channels]))

    layers = nn.Sequential(*(conv(4 if i else 3, 3 if i == 3 else 4) for i in range(4)), conv(3, 4))
    graph = ChannelGraph(Net(run, layers=layers, head=head(4)), torch.zeros(1, 4, 8, 8))
    assert frozen(graph) == {
        "layers.3": (3, "its width is used elsewhere in the code, where it must not change")
    }
    assert graph.num_genes == 4 * 4
    assert graph.verify(np.arange(16) % 2 == 0).holds


def test_maps_are_pruned_that_are_sampled_where_the_network_says_and_the_coordinates_stay() -> None:
    def run(net: Net, x: torch.Tensor) -> torch.Tensor:
        maps = net.stem(x)
        grid = F.affine_grid(torch.eye(2, 3).expand(len(x), 2, 3).to(x), list(x.shape), align_corners=False)
        moved = F.grid_sample(maps, grid + 0.1 * net.offsets(maps).permute(0, 2, 3, 1), align_corners=False)
        return net.head(torch.relu(moved))

    torch.manual_seed(2)
    net = Net(run, stem=conv(3, 8), offsets=conv(8, 2), head=head(8)).eval()
    graph = ChannelGraph(net, IMAGE)
    assert ties(graph) == {("stem",): 8}
    assert frozen(graph)["offsets"][0] == 2
    kept = np.arange(8) % 3 > 0
    assert graph.verify(kept).holds
    images = torch.randn(3, 3, 12, 12)
    handle = net.stem.register_forward_hook(lambda module, args, out: out * torch.tensor(kept)[:, None, None])
    with torch.no_grad():
        masked = net(images)
    handle.remove()
    with torch.no_grad():
        assert torch.allclose(graph.prune(kept)(images), masked, atol=1e-6)


def test_maps_go_with_the_ones_whose_maxima_they_are_put_back_to() -> None:
    def run(net: Net, x: torch.Tensor) -> torch.Tensor:
        pooled, places = F.max_pool2d(net.stem(x), 2, return_indices=True)
        return net.head(F.max_unpool2d(net.inner(pooled), places, 2).rot90(1, (2, 3)))

    torch.manual_seed(2)
    net = Net(run, stem=conv(3, 8), inner=conv(8, 8), head=nn.Conv2d(8, 2, 3)).eval()
    graph = ChannelGraph(net, IMAGE)
    assert ties(graph) == {("stem", "inner"): 8}
    kept = np.arange(8) % 3 > 0
    assert graph.verify(kept).holds
    images, gate = torch.randn(3, 3, 12, 12), torch.tensor(kept)[:, None, None]
    handles = [
        layer.register_forward_hook(lambda module, args, out: out * gate) for layer in (net.stem, net.inner)
    ]
    with torch.no_grad():
        masked = net(images)
    for handle in handles:
        handle.remove()
    with torch.no_grad():
        assert torch.allclose(graph.prune(kept)(images), masked, atol=1e-6)
