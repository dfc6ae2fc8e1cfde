"""Targets: the network that meets limits, from Python, while a run searches and afterwards."""

import copy
import math
import shutil
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.config import TrainConfig
from deeppruning.errors import InputError, RunError
from deeppruning.limits import Limits
from deeppruning.reporting.data import collect
from deeppruning.reporting.plots import layers, marked, population
from deeppruning.runs import RunFolder, facts
from deeppruning.searching.task import Task
from deeppruning.targets.aiming import with_focus, with_objective
from deeppruning.training.loop import fit
from search_helpers import EXAMPLE, digits, outcome, quick_finetune, quick_guided, quick_search, tiny_net

OPTIONS = {
    "search": quick_guided(generations=4, round_to=1),  # the exact figure, of a network of three layers
    "finetune": quick_finetune(epochs=1),
    "workers": 1,
}


@lru_cache
def network():
    """Wide enough for a filter to be a small part, and trained: else an empty network is as good as any."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = []
        for wide, out, stride in ((1, 16, 1), (16, 24, 2), (24, 24, 1)):
            parts += [nn.Conv2d(wide, out, 3, stride, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        found = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    fit(found, digits()[0], TrainConfig(epochs=20, lr=0.1, batch_size=50, crop=0, flip=False))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was asked for 40 % of the FLOPs."""
    folder = tmp_path_factory.mktemp("target") / "run"
    return dp.prune(network(), *digits(), run_dir=folder, target={"flops": 0.4}, **OPTIONS)


def test_the_target_is_a_fourth_solution_within_its_limit_and_near_it(run):
    target = run.target
    whole = run.original.flops
    within = [each.flops for each in run.candidates if each.flops <= 0.4 * whole]
    assert target.flops in within and 0.98 * 0.4 * whole <= max(within)
    assert best_by_score(run).flops >= 0.85 * 0.4 * whole
    assert [one.role for one in run.solutions] == ["heavy", "knee", "light", "target"]
    assert target.path.name == "target.safetensors" and target.test_error is not None
    again = dp.load(target.path, network())
    assert sum(p.numel() for p in again.parameters()) == target.params
    with RunFolder.open(run.run_dir, read_only=True) as opened:
        assert opened.config["target"] == {"flops": "40%"} and opened.config["search"]["focus"] == 0.4
        known = opened.history.get_fact(facts.TARGET)
    assert known["met"] is True and known["id"] == target.id and known["asked"] == "flops=40%"
    assert known["note"].startswith(f"met by candidate {target.id}: flops ")
    assert f"\ntarget flops=40%: {known['note']}\n" in repr(run)


def best_by_score(run):
    within = [one for one in run.candidates if one.flops <= 0.4 * run.original.flops]
    return min(within, key=lambda one: (one.evaluated.judged, one.evaluated.cost, one.id))


def test_it_is_the_best_by_score_of_all_candidates_within_unless_a_pick_errs_less(run):
    best = best_by_score(run)
    assert run.target.id == best.id or f"it errs less than candidate {best.id}" in repr(run)


class Contrary(Task):
    """The search takes wide networks for the better ones, data set aside the thin ones."""

    def candidate_error(self, model, seed):
        return 1.0 - _parameters(model) / 10_000

    def validation_error(self, model):
        return _parameters(model) / 10_000


def _parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.slow
def test_networks_that_are_fine_tuned_already_are_looked_at_too(tmp_path):
    options = {"search": quick_search(mutation=0.3), "target": "flops=90%", "run_dir": tmp_path / "run"}
    result = dp.prune(tiny_net(), task=Contrary(), example_input=EXAMPLE, workers=1, **options)
    within = [one for one in result.candidates if one.flops <= 0.9 * result.original.flops]
    widest = max(within, key=lambda one: one.params)
    tuned = [one for one in within if one.id in {*(pick.id for pick in result.solutions), widest.id}]
    assert result.target.params == min(one.params for one in tuned) < widest.params
    told = f"; on held-out data its error is lower than that of candidate {widest.id}"
    assert told in repr(result)
    again = dp.pick(
        tmp_path / "run", tiny_net(), target={"params": 0.95}, task=Contrary(), example_input=EXAMPLE
    )
    assert (again.role, again.params) == ("target-2", result.target.params)


def test_much_of_the_effort_goes_near_the_target(run):
    shares = np.array([one.flops for one in run.candidates]) / run.original.flops
    assert ((shares > 0.38) & (shares <= 0.4)).mean() > 0.3


def test_a_run_that_goes_on_comes_to_the_same_target(run, tmp_path):
    train, test = digits()
    again = tmp_path / "run"
    shutil.copytree(run.run_dir, again)
    with RunFolder.open(again) as opened:  # as if it had been killed before the target was settled
        opened.history._write_rows("DELETE FROM facts WHERE key = ?", [("target",), ("finished",)])
    (again / "target.safetensors").unlink()
    resumed = dp.resume(again, network(), train, test)
    assert resumed.target.id == run.target.id
    assert resumed.target.path.read_bytes() == run.target.path.read_bytes()
    assert outcome(again)["candidates"] == outcome(run.run_dir)["candidates"]


def test_edited_limits_are_refused(run, tmp_path):
    again = tmp_path / "run"
    shutil.copytree(run.run_dir, again)
    config = again / "config.toml"
    config.write_text(config.read_text().replace('flops = "40%"', 'flops = "30%"'))
    with pytest.raises(RunError, match=r"target\.flops was '40%' and is '30%'"):
        dp.resume(again, network(), *digits())


def test_best_finds_networks_within_limits_without_a_search(run):
    assert run.best(flops=0.4).id == best_by_score(run).id
    small = run.best(params="60%", flops=int(0.5 * run.original.flops))
    assert small.params <= 0.6 * run.original.params and small.flops <= 0.5 * run.original.flops
    assert sum(p.numel() for p in small.model.parameters()) == small.params
    assert all(one.path is None or one.path.is_file() for one in (small, run.best(flops=0.7)))
    assert "not saved" in repr(replace(small, path=None))
    graph = run.meter.context.graph
    size = graph.size(graph.full_genome())
    light = run.best(size="50%")
    assert sum(t.nbytes for t in light.model.state_dict().values()) <= 0.5 * size
    assert run.best(latency="10s", flops=0.4).id == best_by_score(run).id
    with pytest.raises(RunError, match=r"keeps params=1%; the nearest is candidate \d+: params .* % \(limit"):
        run.best(params="1%")
    with pytest.raises(InputError, match=r"best\(flops=0\.4\)"):
        run.best()
    with pytest.raises(TypeError, match="flop"):
        run.best(flop=0.4)


def test_best_limits_the_error_in_the_search(run):
    errors = {one.id: one.train_error for one in run.candidates if not one.genome.all()}
    most = sorted(errors.values())[len(errors) // 2]
    cheapest = run.best(error=most)
    assert cheapest.train_error <= most
    assert cheapest.flops == min(one.flops for one in run.candidates if errors.get(one.id, 2.0) <= most)
    assert run.best(error=most, flops="100%").train_error <= most


@pytest.mark.slow
def test_targets_stand_side_by_side(run, tmp_path):
    again, (train, test) = tmp_path / "run", digits()
    shutil.copytree(run.run_dir, again)
    blank = copy.deepcopy(network())  # the weights are those that the run holds
    for weight in blank.parameters():
        nn.init.zeros_(weight)
    found = dp.pick(again, blank, train, test, target={"params": 0.6})
    assert (found.role, found.path.name) == ("target-2", "target-2.safetensors")
    assert found.params <= 0.6 * run.original.params
    told = r"target-3 flops=200: not met; the nearest is candidate \d+: flops .* \(limit: 200\)"
    with pytest.raises(RunError, match=told):
        dp.pick(again, network(), train, test, target={"flops": 200})
    assert dp.pick(again, network(), train, test, target="params=60%").role == "target-2"  # the same again
    resumed = dp.resume(again, network(), train, test)
    assert [one.role for one in resumed.solutions] == ["heavy", "knee", "light", "target", "target-2"]
    assert [one.id for one in resumed.targets] == [run.target.id, found.id]
    assert resumed.target.path.read_bytes() == run.target.path.read_bytes()
    assert "\ntarget flops=40%: met by" in repr(resumed) and "\ntarget-2 params=60%: met by" in repr(resumed)
    data = collect(again)
    assert [entry["role"] for entry in data["solutions"]][3:] == ["target", "target-2"]
    assert {role: one["asked"] for role, one in data["targets"].items()} == {
        "target": "flops=40%",
        "target-2": "params=60%",
    }
    assert {"target-2"} <= set(marked(data)) and population(data) is not None and layers(data) is not None


@pytest.mark.slow
def test_pick_replaces_the_last_target_only_when_told(run, tmp_path):
    again, (train, test) = tmp_path / "run", digits()
    shutil.copytree(run.run_dir, again)
    timings = {"latency_ms": {"PyTorch, batch 1": {"median": 2.0, "spread": 0.1}}}
    bench = {"networks": {"knee": timings, "target": timings}, "warnings": ["target has ...", "knee has ..."]}
    with RunFolder.open(again) as opened:
        opened.history.set_fact(facts.LATENCY, {"knee": 0.002, "target": 0.003})
        opened.history.set_fact(facts.BENCH, bench)
    found = dp.pick(again, network(), train, test, replace=True, target={"params": 0.3})
    assert found.id != run.target.id  # so what was measured of the old one is forgotten
    with RunFolder.open(again, read_only=True) as opened:
        assert opened.history.get_fact(facts.LATENCY) == {"knee": 0.002}
        kept = opened.history.get_fact(facts.BENCH)
    assert kept == {"networks": {"knee": timings}, "warnings": ["knee has ..."]}
    assert found.role == "target" and found.params <= 0.3 * run.original.params
    resumed = dp.resume(again, network(), train, test)
    assert [one.id for one in resumed.targets] == [found.id]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"flops": 40}, r"40% or 40M\?"),
        ("size=1", r"1% or 1MB\?"),
        ("flops=101", "874 of its 147,696 flops; ask for flops="),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_search(tmp_path, target, told):
    with pytest.raises(InputError, match=told):
        dp.prune(network(), *digits(), run_dir=tmp_path / "run", target=target, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_target_that_cannot_be_met_says_how_near_it_came(tmp_path):
    train, test = digits()
    graph = dp.ChannelGraph(network(), EXAMPLE)
    least = graph.flops(~graph.full_genome())  # which flips of a few bits do not come to
    options = {**OPTIONS, "search": quick_search()}
    result = dp.prune(network(), train, test, run_dir=tmp_path / "run", target=f"flops={least}", **options)
    assert [one.role for one in result.solutions] == ["heavy", "knee", "light"]
    nearest = min(one.flops for one in result.candidates)
    with pytest.raises(RunError, match=rf"not met; the nearest is candidate \d+: flops {nearest:,} "):
        _ = result.target
    for shown in (repr(result), result._repr_html_()):
        assert shown.count(f"target flops={least}: not met; the nearest is") == 1 and "failed" not in shown
    with pytest.raises(RunError, match="no target network: not met"):
        _ = dp.resume(tmp_path / "run", network(), train, test).target


def test_an_error_is_checked_on_images_that_are_set_aside(tmp_path):
    train, test = digits(train=300)
    result = dp.prune(network(), train, test, run_dir=tmp_path / "run", target={"error": "+100%"}, **OPTIONS)
    assert result.target.flops == min(one.flops for one in result.candidates)
    with RunFolder.open(tmp_path / "run", read_only=True) as opened:
        note = opened.history.get_fact(facts.TARGET)["note"]
    assert "on held-out data" in note


@pytest.mark.slow
def test_an_error_out_of_reach_leaves_the_three_picks(tmp_path):
    train, test = digits()
    options = {**OPTIONS, "finetune": quick_finetune(epochs=0)}
    result = dp.prune(tiny_net(), train, test, run_dir=tmp_path / "run", target={"error": 0.0}, **options)
    told = r"not met; the nearest is candidate \d+: error .* \(limit: 0%\)"
    with pytest.raises(RunError, match=told):
        _ = result.target
    assert len(result.solutions) == 3


@pytest.mark.slow  # test_runs_old.py picks from one that was finished long ago
def test_a_run_of_the_papers_search_is_picked_from_by_cost_and_by_error(tmp_path):
    train, test = digits()
    common = {"search": quick_search(), "finetune": quick_finetune(epochs=1), "workers": 1}
    result = dp.prune(tiny_net(), train, test, run_dir=tmp_path / "run", **common)
    with pytest.raises(RunError, match="no limits were given"):
        _ = result.target
    found = dp.pick(tmp_path / "run", tiny_net(), train, test, target={"flops": 0.9})
    assert found.flops <= 0.9 * result.original.flops
    free = dp.pick(tmp_path / "run", tiny_net(), train, test, target="error=+100%")
    assert free.flops <= found.flops
    assert (tmp_path / "run" / "finetune" / "set-aside" / f"candidate-{free.id}.safetensors").exists()


@pytest.mark.parametrize("focus", [0.02, 0.1, 0.15, 0.3, 0.5, 0.84, 0.9])
def test_the_range_of_cost_includes_the_focus_and_has_an_edge_there(focus):
    search = with_focus(dp.SearchConfig(), focus)
    growth = search.high / search.low
    edges = [search.low * growth ** (number / search.bins) for number in range(1, search.bins + 1)]
    assert min(abs(math.log(edge / focus)) for edge in edges) < 1e-9
    assert search.low < focus <= search.high <= 1.0
    assert search.low > 0.7 * min(0.15, 0.8 * focus) and search.high >= 0.75


def test_the_target_decides_the_objective_unless_another_is_chosen():
    usual = dp.SearchConfig()
    asked = {"flops=40%": "flops", "size=1MB": "size", "params=900": "params", "error=8%": "flops"}
    asked |= {"flops=40%,latency=5ms": "latency", "size=1MB,flops=40%": "flops"}
    assert {text: with_objective(usual, Limits.of(text)).objective for text in asked} == asked
    assert with_objective(dp.SearchConfig(objective="params"), Limits.of("size=1MB")).objective == "params"
