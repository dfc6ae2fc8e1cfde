"""The networks of a run measured side by side: every figure there, and the right warnings."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from cli_calls import call
from deeppruning.deploying.onnx_graph import has_onnx
from deeppruning.errors import InputError, RunError, WeightsError
from deeppruning.exporting import bench_networks
from deeppruning.exporting.bench import is_noisy, speed_limits, warnings_for
from deeppruning.exporting.memory import peak_memory
from deeppruning.reporting.data import collect
from deeppruning.runs import RunFolder
from export_runs import TinyNet, python_run

NETWORKS = ["original", "heavy", "knee", "light"]
RUNTIMES = ["PyTorch", "onnxruntime"] if has_onnx() else ["PyTorch"]


def command(*arguments: object) -> str:
    return call(*arguments).output


def test_four_rows_are_printed_kept_and_shown(own_run: Path) -> None:
    output = command("bench", own_run, "--runs", 3, "--batch", 1, "--batch", 4)
    lines = [line.split()[0] for line in output.splitlines() if line.split()]
    assert [name for name in lines if name in NETWORKS] == NETWORKS * 2
    kept = collect(own_run)["bench"]
    assert list(kept["networks"]) == NETWORKS
    for network in kept["networks"].values():
        timings = network["latency_ms"]
        kinds = [f"{runtime}, batch {batch}" for runtime in RUNTIMES for batch in (1, 4)]
        assert list(timings) == [kinds[0], "PyTorch as loaded, batch 1", *kinds[1:]]
        assert all(one["median"] > 0 and one["spread"] >= 0 and one["runs"] == 3 for one in timings.values())
    assert "PyTorch, batch 4" in (own_run / "report.html").read_text()


def test_json_has_the_sizes(own_run: Path) -> None:
    figures = json.loads(command("bench", own_run, "--runs", 1, "--batch", 1, "--json"))
    with RunFolder.open(own_run, read_only=True) as run:
        facts = run.history.facts()
    original, light = figures["networks"]["original"], figures["networks"]["light"]
    assert original["flops"] == facts["original"]["flops"]
    assert light["params"] == facts["solution/light"]["params"]
    assert light["file_bytes"] == (own_run / "light.safetensors").stat().st_size
    assert 4 * light["params"] < light["peak_memory_bytes"] < original["peak_memory_bytes"]


def test_a_candidate_that_holds_two_roles_is_measured_once(own_run: Path, tmp_path: Path) -> None:
    both = tmp_path / "run"
    shutil.copytree(own_run, both)
    shutil.copy(both / "light.safetensors", both / "target.safetensors")
    with RunFolder.open(both) as run:
        run.history.set_fact("solution/target", run.history.get_fact("solution/light"))
    networks = bench_networks(both, batches=[1], rounds=3, trust_run=True)["networks"]
    assert networks["light"]["latency_ms"] == networks["target"]["latency_ms"]
    assert networks["light"]["latency_ms"] != networks["original"]["latency_ms"]


def test_a_run_at_work_is_left_alone(own_run: Path) -> None:
    with RunFolder.open(own_run) as run:
        before = run.history.get_fact("bench")
        output = command("bench", own_run, "--runs", 1, "--batch", 2)
        assert "not saved in the run" in output and "in use" in output
        assert run.history.get_fact("bench") == before


def test_a_run_from_python_with_the_class_in_hand(tmp_path: Path) -> None:
    run = python_run(tmp_path)
    figures = bench_networks(run, batches=[1], rounds=1, model=TinyNet())
    assert list(figures["networks"]) == NETWORKS
    with pytest.raises(WeightsError, match="not in the zoo"):
        command("bench", run)


def test_bad_requests_are_refused(own_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        bench_networks(own_run, batches=[])
    with pytest.raises(InputError, match="unknown device"):
        command("bench", own_run, "--device", "abacus")
    with pytest.raises(RunError, match="not a run"):
        command("bench", tmp_path)


def network(flops: int, median: float) -> dict[str, object]:
    return {"flops": flops, "latency_ms": {"PyTorch, batch 1": {"median": median, "spread": 0.0}}}


@pytest.mark.parametrize(
    ("flops", "median", "warned"),
    [(50, 0.6, False), (50, 0.74, False), (50, 0.8, True), (85, 1.0, False), (70, 1.1, True)],
)
def test_warns_where_flops_fell_and_latency_did_not(flops: int, median: float, warned: bool) -> None:
    lines = warnings_for({"original": network(100, 1.0), "knee": network(flops, median)})
    assert len(lines) == int(warned)
    if median > 1:
        assert lines == ["knee has 30 % fewer FLOPs, but is 10 % slower (PyTorch, batch 1)"]


def test_a_large_spread_is_noise() -> None:
    timing = {"median": 1.0, "spread": 0.21}
    assert is_noisy({"original": {"latency_ms": {"PyTorch, batch 1": timing}}})
    assert not is_noisy({"original": network(100, 1.0)})


def test_peak_memory_counts_what_is_alive_at_once() -> None:
    model = nn.Sequential(nn.Linear(10, 100, bias=False), nn.ReLU(), nn.Linear(100, 10, bias=False))
    # Weights 2000 numbers, input 10; at the ReLU its input and output of 100 live together.
    assert peak_memory(model, torch.zeros(1, 10)) == 4 * (2000 + 10 + 200)


def test_a_speed_is_told_by_ratios_within_rounds() -> None:
    before = [10.0, 80.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]  # one slow moment, in one of the two
    after = [5.0, 5.0, 40.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    assert speed_limits(before, after) == (2.0, 2.0)
    assert speed_limits(before[:7], after[:7]) == (0.25, 16.0)
    assert (
        speed_limits(before[:5], after[:5]) is None
    )  # of five even the extremes hold it 15 of 16 times only


def test_limits_of_speed_are_kept_from_six_rounds_on(own_run: Path) -> None:
    for rounds in (5, 6):
        networks = bench_networks(own_run, batches=[1], rounds=rounds, trust_run=True)["networks"]
        assert all("speed_low" not in one for one in networks["original"]["latency_ms"].values())
        for timing in networks["light"]["latency_ms"].values():
            assert ("speed_low" in timing) == (rounds == 6)
            assert timing.get("speed_low", 1.0) <= timing.get("speed_high", 1.0)
