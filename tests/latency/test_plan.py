"""A planned latency: the widths it goes by are those of the thin network, its times those of the table."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import deeppruning as dp
from deeppruning.deploying.onnx_graph import has_onnx
from deeppruning.errors import InputError, RunError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.latency import Conditions, LatencyPlan
from deeppruning.latency.layers import LayerShape, find_layers
from deeppruning.latency.plan import (
    Surface,
    aligned_levels,
    explain,
    odd_levels,
    plan_latency,
    sampled_genomes,
)
from deeppruning.latency.runtimes import OnnxRuntime, TorchRuntime
from deeppruning.latency.timing import LayerTimes
from deeppruning.models import create_model
from deeppruning.objectives import OBJECTIVES
from deeppruning.runs import RunFolder, facts
from search_helpers import EXAMPLE, digits, quick_finetune, quick_guided, tiny_net

needs_onnx = pytest.mark.skipif(not has_onnx(), reason="needs onnx and onnxruntime")

KINDS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
FAMILIES = ["resnet20", *(
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("mobilenet_v2", "densenet50", "googlenet", "squeezenet")
)]  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "deeppruning" / "latency"


@pytest.mark.parametrize("name", FAMILIES)
def test_extents_are_those_of_the_thin_networks_weights(name: str) -> None:
    model = create_model(name, num_classes=5)
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32), depth=True)
    layers = [name for name, module in model.named_modules() if isinstance(module, KINDS)]
    genomes = sampled_genomes(graph, 5, seed=3)
    found = graph.extents(layers, genomes)
    gone = 0
    for genome, rows in zip(genomes, found, strict=True):
        modules = dict(graph.prune(genome).named_modules())
        for layer, extents in zip(layers, rows, strict=True):
            thin = modules[layer]
            if isinstance(thin, (Hollow, Answer)):
                gone += 1
                assert extents.tolist() == [0, 0]
            else:
                assert extents.tolist() == list(thin.weight.shape[:2])
    assert gone > 0


def test_a_networks_layers_are_found_with_what_they_read_and_write() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, stride=2, padding="valid", groups=8),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Flatten(), nn.Linear(4 * 6 * 6, 5),
    )  # fmt: skip
    graph = ChannelGraph(network, torch.zeros(2, 3, 8, 8))
    first, depthwise, back, last = find_layers(graph, network, torch.zeros(2, 3, 8, 8))
    assert (first.name, first.extents, first.free) == ("0", (8, 3), (True, False))
    assert (first.inputs, first.outputs) == (64, 64)
    assert depthwise.shape == LayerShape((8, 8), (3, 3), (2, 2), (0, 0), (1, 1), groups=0)
    assert depthwise.shape.channels((5, 1)) == (5, 5, 5)
    assert (depthwise.inputs, depthwise.outputs) == (64, 9)
    assert back.shape.transposed and back.shape.channels((5, 4)) == (5, 4, 1)
    assert (last.extents, last.shape.size, last.inputs, last.outputs) == ((5, 144), (1,), 1, 1)


@needs_onnx
@pytest.mark.parametrize(
    "shape, extents, wanted",
    [
        (LayerShape((9, 9), (3, 3), (2, 2), (1, 1), (1, 1)), (6, 5), (2, 6, 5, 5)),
        (LayerShape((9, 9), (3, 3), (1, 1), (2, 2), (2, 2), groups=0), (6, 1), (2, 6, 9, 9)),
        (LayerShape((9, 9), (1, 1), (1, 1), (0, 0), (1, 1), groups=2, per_group=3), (6, 4), (2, 6, 9, 9)),
        (LayerShape((5, 5), (2, 2), (2, 2), (0, 0), (1, 1), transposed=True), (6, 5), (2, 5, 10, 10)),
        (LayerShape((7,), (3,), (1,), (1,), (1,)), (6, 5), (2, 6, 7)),
        (LayerShape((4,)), (6, 5), (8, 6)),
    ],
)
def test_both_runtimes_run_the_same_layer(shape: LayerShape, extents: Any, wanted: Any) -> None:
    conditions = Conditions(batch=2)
    for runtime in (TorchRuntime(conditions), OnnxRuntime(conditions)):
        answer: Any = runtime.layer(shape, extents)()
        assert tuple(answer.shape) == wanted


@given(st.integers(1, 700))
def test_levels_lie_within_the_width_and_are_of_their_kind(extent: int) -> None:
    aligned, odd = aligned_levels(extent), odd_levels(extent)
    assert aligned[-1] == extent and all(level % 4 == 0 for level in aligned[:-1])
    assert odd[0] == 1 and all(level % 4 for level in odd if level != extent)
    assert max(odd) <= extent and len(aligned) <= 8 and len(odd) <= 4


@settings(max_examples=50)
@given(st.data())
def test_a_surface_goes_through_its_points_and_between_them(data: st.DataObject) -> None:
    firsts, seconds = (
        tuple(sorted(data.draw(st.sets(st.integers(1, 99), min_size=1, max_size=4)))) for _ in range(2)
    )
    time = st.floats(0.1, 9.0)
    values = tuple(tuple(data.draw(time) for _ in seconds) for _ in firsts)
    surface = Surface(firsts, seconds, values)
    for row, first in enumerate(firsts):
        found = surface(np.full(len(seconds), float(first)), np.array(seconds, dtype=float))
        assert found == pytest.approx(values[row])
    middle = surface(np.array([np.mean(firsts)]), np.array([np.mean(seconds)]))
    assert np.min(values) - 1e-9 <= middle[0] <= np.max(values) + 1e-9


def test_factors_explain_what_was_measured_and_none_is_negative() -> None:
    generator = np.random.default_rng(0)
    figures = generator.random((12, 5)) + 0.1
    wanted = np.array([0.0, 1.5, 0.0, 0.2, 0.0])
    assert explain(figures, figures @ wanted) == pytest.approx(wanted, abs=1e-5)
    assert min(explain(figures, figures @ np.array([1.0, 1.0, -0.2, 0.0, 0.0]))) >= 0.0


def test_a_plan_adds_up_the_times_it_knows(own_cache: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    graph = ChannelGraph(model, torch.zeros(1, 3, 10, 10))
    times = LayerTimes.of(TorchRuntime(Conditions()))
    for layer in find_layers(graph, model, torch.zeros(1, 3, 10, 10)):
        for first in range(1, 9):
            for second in range(1, 9):
                times.get(
                    layer.shape, (first, second), lambda first=first, second=second: first * second * 1.0
                )
    times.save()
    assert len(list(own_cache.glob("*.json"))) == 1
    measured = plan_latency(graph, torch.zeros(1, 3, 10, 10), Conditions())
    plan = LatencyPlan(measured.conditions, measured.layers, measured.surfaces, (0.0, 1.0, 0.0, 0.0, 0.0))
    genomes = np.ones((3, 16), dtype=bool)
    genomes[1, 4:8] = genomes[1, 12:] = False  # 4 and 4: on the table of multiples
    genomes[2, 5:8] = False  # 5 and 8: on the other
    assert plan(graph, genomes) == pytest.approx([24 + 64 + 16, 12 + 16 + 8, 15 + 40 + 16])
    written, read = plan._latency_features(graph, genomes)[:, 3:].T
    assert written.tolist() == [8 * 64 + 8 * 36 + 2 * 16, 4 * 64 + 4 * 36 + 2 * 16, 5 * 64 + 8 * 36 + 2 * 16]
    assert read[0] == 3 * 100 + 8 * 64 + 8 * 36
    assert (
        LatencyPlan.from_table(json.loads(json.dumps(plan.to_table())))(graph, genomes).tolist()
        == plan(graph, genomes).tolist()
    )


@needs_onnx
def test_what_a_call_itself_takes_is_not_counted_for_every_layer(own_cache: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))
    graph = ChannelGraph(model, torch.zeros(1, 3, 10, 10))
    conditions = Conditions("onnxruntime")
    times = LayerTimes.of(OnnxRuntime(conditions))
    for layer in find_layers(graph, model, torch.zeros(1, 3, 10, 10)):
        for first, second in itertools.product(range(1, 9), repeat=2):
            times.get(layer.shape, (first, second), lambda: 1.0)
    times.save()
    assert OnnxRuntime(conditions).nothing()().tolist() == [0.0]
    plan = plan_latency(graph, torch.zeros(1, 3, 10, 10), conditions)
    grids = [np.array(one.values) for pair in plan.surfaces for one in pair]
    assert all(grid.min() == grid.max() for grid in grids)
    assert 0.9 < grids[0].max() < 1.0  # a call of nothing takes far less than the second that was set


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"seconds": {"a": {"4x4": -1}}}', '{"seconds": {"a": {"4x4": NaN}}}']
)
def test_a_damaged_cache_is_measured_anew(own_cache: Path, content: str) -> None:
    times = LayerTimes.of(TorchRuntime(Conditions()))
    own_cache.mkdir(parents=True)
    times.path.write_text(content)
    again = LayerTimes.of(TorchRuntime(Conditions()))
    assert again.seconds == {}
    assert again.get(LayerShape((4,)), (2, 2), lambda: 0.25) == 0.25
    again.save()
    assert LayerTimes.of(TorchRuntime(Conditions())).get(LayerShape((4,)), (2, 2), lambda: 9.0) == 0.25
    other = LayerTimes.of(TorchRuntime(Conditions(batch=8)))
    assert other.path != times.path and other.seconds == {}


def test_a_search_by_latency_goes_by_the_plan_that_its_run_keeps(tmp_path: Path, own_cache: Path) -> None:
    train, _ = digits()
    search = quick_guided(objective="latency", generations=2, low=0.05, high=1.0)
    result = dp.prune(
        tiny_net(),
        train,
        run_dir=tmp_path / "run",
        search=search,
        finetune=quick_finetune(epochs=0),
        workers=1,
    )
    with RunFolder.open(tmp_path / "run") as run:
        table = run.history.get_fact(facts.LATENCY_PLAN)
        assert table is not None
        plan = LatencyPlan.from_table(table)
        graph = ChannelGraph(tiny_net(), EXAMPLE, depth=True)
        for one in result.candidates:
            assert one.cost == plan(graph, one.genome[None])[0]
        assert next(own_cache.glob("*.json")).stat().st_size > 100
        next(own_cache.glob("*.json")).unlink()
    again = dp.resume(tmp_path / "run", tiny_net(), train, workers=1)
    assert [one.cost for one in again.candidates] == [one.cost for one in result.candidates]
    assert not list(own_cache.glob("*.json")), "nothing was measured anew"
    with RunFolder.open(tmp_path / "run") as run:
        run.history.set_fact(facts.LATENCY_PLAN, {"layers": []})
    with pytest.raises(RunError, match="latency plan"):
        dp.resume(tmp_path / "run", tiny_net(), train, workers=1)


@needs_onnx
@pytest.mark.slow  # the test before searches by a plan, and others make plans in onnxruntime
def test_a_search_by_inputs_alone_plans_in_onnxruntime(own_cache: Path) -> None:
    config = quick_guided(objective="latency", latency_runtime="onnxruntime")
    front = dp.search(tiny_net().eval(), torch.randn(64, *EXAMPLE.shape[1:]), search=config, workers=1)
    plan = front.meter.context.plan
    assert plan.conditions == Conditions("onnxruntime")
    genomes = np.array([one.genome for one in front.candidates])
    assert [one.cost for one in front.candidates] == pytest.approx(plan(front.meter.context.graph, genomes))


def test_what_cannot_be_planned_is_said() -> None:
    with pytest.raises(InputError, match="needs a plan"):
        OBJECTIVES["latency"].count(ChannelGraph(tiny_net(), EXAMPLE), np.ones(3))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"unknown latency_runtime 'onnx'\. Known: onnxruntime, torch"):
        dp.SearchConfig(latency_runtime="onnx")
    with pytest.raises(InputError, match="latency_batch must be a whole number of at least 1"):
        dp.SearchConfig(latency_batch=0)
    with pytest.raises(InputError, match="networks that take one tensor"):
        OnnxRuntime(Conditions()).network(tiny_net(), (EXAMPLE, EXAMPLE))
