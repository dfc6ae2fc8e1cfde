"""What the report reads from a run, in every state a run can be in."""

import re

import numpy as np
import pytest

from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.plots import finetuning, layers, population, svg
from deeppruning.reporting.sections.candidates import _candidate_row
from deeppruning.reporting.standing import in_use
from deeppruning.runs import Candidate, EpochRow, Evaluation, RunFolder, facts
from deeppruning.system.commands import command_for_page
from report_runs import GENES, LAYERS, ORIGINAL, add_generation, config, genome, make_run


def test_a_finished_run_has_its_verdict_picks_and_curves(tmp_path):
    data = collect(make_run(tmp_path / "run"))
    assert (data["state"], data["status"], data["title"]) == ("finished", "finished", "resnet20 on digits")
    numbers = ["10.0", "1.00", "7.00", "8.00", "58.0", "3.00"]
    assert data["verdict"].startswith("Take heavy: ") and re.findall(r"\d+\.\d+", data["verdict"]) == numbers
    assert data["recommended"] == "heavy"
    assert [(one["role"], one["id"], one["final"]) for one in data["solutions"]] == [
        ("heavy", 0, True),
        ("knee", 12, True),
        ("light", 14, True),
    ]
    assert [(curve["id"], curve["roles"], len(curve["epochs"])) for curve in data["curves"]] == [
        (0, ["heavy"], 2),
        (12, ["knee"], 2),
        (14, ["light"], 2),
    ]
    assert data["picks"][1] == {"generation": 2, "heavy": 0, "knee": 8, "light": 10}
    assert (len(data["candidates"]), data["evaluations"]) == (15, 15)


def test_widths_are_those_of_the_genome(tmp_path):
    data = collect(make_run(tmp_path / "run"))
    assert [layer["fixed"] for layer in data["layers"]] == [False, False, True]
    for row in data["candidates"]:
        bits = genome(62 - row["id"])
        stem, head = int(bits[:4].sum()), int(bits[4:].sum()) + 1
        assert row["widths"] == [stem, head, 2]
        assert row["kept"] == bits.sum()


@pytest.mark.parametrize(("held", "word"), [(True, "running"), (False, "stopped")])
def test_an_unfinished_run_says_how_far_it_is(tmp_path, held, word):
    path = make_run(tmp_path / "run", 2)
    run = RunFolder.open(path)
    run.history.record_generation(3, [(11, genome(51))])
    if not held:
        run.close()
    data = collect(path)
    run.close()
    assert (data["state"], data["status"]) == ("searching", f"{word}: generation 3 of 3")
    assert re.findall(r"knee|\d[\d.]*", data["verdict"]) == ["11", "knee", "42.0", "45.00"]
    assert [one["final"] for one in data["solutions"]] == [False] * 3
    assert data["commands"]["export"] == {}


def test_fine_tuning_is_a_state_of_its_own(tmp_path):
    data = collect(make_run(tmp_path / "run", finished=False))
    assert (data["state"], data["status"]) == (
        "finetuning",
        "stopped: fine-tuning the selected networks, epoch 0 of 2 done",
    )


def test_a_run_without_history_or_candidates_says_so(tmp_path):
    RunFolder.create(tmp_path / "new", config()).close()
    assert collect(tmp_path / "new")["state"] == "empty"
    make_run(tmp_path / "started", 0)
    data = collect(tmp_path / "started")
    assert data["state"] == "empty" and ORIGINAL.items() <= data["original"].items()
    assert data["verdict"].startswith("No candidate has been evaluated yet")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a folder"):
        collect(tmp_path / "missing")
    with pytest.raises(RunError, match="not a run"):
        collect(tmp_path)


def test_commands_quote_the_path_and_ask_for_an_own_model(tmp_path):
    path = make_run(tmp_path / "my run; rm", model={"spec": "nets.py:tiny"})
    commands = collect(path)["commands"]
    assert commands["finetune"] == f"{command_for_page('finetune', path.name, '--candidate')} "
    assert "finetune 'my run; rm' --candidate" in commands["finetune"]
    assert commands["load"]["knee"] == "model = dp.load('my run; rm/knee.safetensors', model)"


def test_latencies_and_candidates_fine_tuned_on_request_are_shown(tmp_path):
    path = make_run(tmp_path / "run")
    with RunFolder.open(path) as run:
        run.history.set_fact("latency_batch_1", {"original": 0.004, "knee": 0.002})
        run.history.set_fact("latency_batch_1_loaded", {"original": 0.006, "knee": 0.005})
        run.history.set_fact("solution/candidate-9", {**run.history.get_fact("solution/knee"), "id": 9})
        for name in ("candidate-9", "candidate-12/abc"):
            run.history.record_epoch(EpochRow(name, 1, 0.1, 0.1, None, 0.01, 1.0))
        run.history.set_fact("solution/candidate-12", run.history.get_fact("solution/knee"))
    data = collect(path)
    timing = data["bench"]["networks"]["knee"]["latency_ms"]
    assert timing == {
        "as exported, one input, one thread": {"median": 2.0},
        "as loaded, one input, one thread": {"median": 5.0},
    }
    assert (data["original"]["latency_ms"], data["original"]["loaded_ms"]) == (4.0, 6.0)
    assert [one["role"] for one in data["solutions"]] == [
        "heavy",
        "knee",
        "light",
        "candidate-12",
        "candidate-9",
    ]
    assert [(curve["name"], curve["roles"]) for curve in data["curves"]][1::2] == [
        ("candidate-12", ["knee"]),
        ("candidate-12/abc", ["candidate-12"]),
    ]
    assert data["curves"][-1]["roles"] == ["candidate-9"]
    assert data["commands"]["export"]["candidate-9"].endswith("--solution candidate-9 --format onnx")


def test_other_objectives_get_their_own_axis(tmp_path):
    path = make_run(tmp_path / "run", 1)
    assert [axis["key"] for axis in collect(path)["axes"]] == ["flops", "params"]
    with RunFolder.open(path) as run:
        bits = genome(1)
        run.history.record_generation(2, [(7, bits)])
        run.history.record_evaluation(
            Evaluation(genome=bits, error=2.5, cost=0.3, flops=5, params=5, seconds=0.1, worker="test")
        )
    data = collect(path)
    assert [axis["key"] for axis in data["axes"]] == ["cost", "flops", "params"]
    assert data["error_is_share"] is False


def test_the_run_is_left_as_it_was_and_may_be_in_use(tmp_path):
    with RunFolder.create(tmp_path / "run", config()) as run:
        run.history.set_fact("layers", LAYERS)
        add_generation(run, 1)
        before = (run.path / "history.sqlite").read_bytes()
        assert in_use(run.path)
        assert len(collect(run.path)["candidates"]) == 7
        assert (run.path / "history.sqlite").read_bytes() == before
    assert not in_use(run.path)
    assert np.array_equal(genome(63), np.ones(GENES, dtype=bool))


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_candidates_without_objectives_are_listed_with_the_reason_and_not_plotted(tmp_path, status):
    path = make_run(tmp_path / "run", 1, finished=False)
    lost = genome(1)
    with RunFolder.open(path) as run:
        run.history.record_generation(2, [(7, lost)])
        run.history.record_evaluation(
            Evaluation(
                genome=lost,
                error=None,
                cost=None,
                flops=400_000,
                params=100,
                seconds=1.0,
                worker="w",
                status=status,
                detail="Traceback\nOSError: no <luck>",
            )
        )
    data = collect(path)
    row = data["candidates"][-1]
    assert (row["id"], row["error"], row["cost"], row["flops"]) == (7, None, None, 400_000)
    assert (row["status"], row["reason"]) == (status, "OSError: no <luck>")
    assert data["error_is_share"] and data["axes"][0]["key"] == "flops"
    without = collect(make_run(tmp_path / "without", 1, finished=False))
    drawn = [len(population(one).axes[0].collections[0].get_offsets()) for one in (data, without)]
    assert drawn[0] == drawn[1] == len(data["candidates"]) - 1
    assert "no <luck>" not in render(data)


def test_layers_of_a_lost_branch_have_no_width():
    genome = np.array([1, 1, 0, 0], dtype=bool)
    row = Candidate(0, 1, genome, Evaluation(genome=genome, error=0.1, cost=2.0, flops=2, params=2))
    layers = {"stem": np.array([0, 1]), "first": np.array([2, 3]), "second": np.array([0, 1])}
    assert _candidate_row(row, layers, {"first": [[2, 3]], "second": [[2, 3]]})["widths"] == [2, 0, 0]
    assert _candidate_row(row, layers, {})["widths"] == [2, 0, 2]


def test_time_left_is_that_of_the_epochs_once_picks_are_tuned(tmp_path):
    path = make_run(tmp_path / "run", finished=False, run={"workers": 8}, finetune={"epochs": 5})
    with RunFolder.open(path) as run:
        for epoch in (1, 2):
            run.history.record_epoch(EpochRow("candidate-0", epoch, 0.5, 0.1, 0.2, 0.01, 6.0))
        # Three picks share eight workers: three at once, 13 of 15 epochs to go.
        assert collect(path)["progress"] == {"what": "epochs", "done": 2, "of": 15, "seconds_left": 26.0}
        # A target that is not settled yet is trained beside them; what precedes its first epoch is none.
        run.history.set_fact(facts.TUNING, [0, 3, 12, 14])
        run.history.record_epoch(EpochRow("candidate-3", 0, 0.5, 0.1, 0.2, 0.01, 6.0))
        assert (collect(path)["progress"]["done"], collect(path)["progress"]["of"]) == (2, 20)
    assert collect(path)["progress"] is None  # nobody works on it


def test_before_the_first_candidate_the_scan_tells_how_far_it_is(tmp_path):
    path = make_run(tmp_path / "run", 0, finished=False)
    with RunFolder.open(path) as run:
        run.history.set_fact(facts.SCAN, {"of": 9, "losses": {"0": 0.5, "3": None}})
        wanted = {"what": "cuts of single layers", "done": 2, "of": 9, "seconds_left": None}
        assert collect(path)["progress"] == wanted


def test_a_target_is_told_while_it_is_awaited_and_once_it_is_settled(tmp_path):
    run_dir = make_run(tmp_path / "run", 2, target={"flops": "40%", "error": "+1%"})
    waiting = collect(run_dir)["targets"]["target"]
    assert (waiting["asked"], waiting["met"]) == ("flops=40%, error=+1%", None)
    settled = {"asked": "flops=40%, error=+1%", "id": None, "met": False, "note": "not met; the nearest is 3"}
    with RunFolder.open(run_dir) as run:
        run.history.set_fact("target", settled)
    assert collect(run_dir)["targets"] == {"target": settled}
    assert collect(make_run(tmp_path / "without"))["targets"] == {}


def test_names_of_curves_stay_in_the_picture_and_lost_layers_are_crossed(tmp_path):
    data = collect(make_run(tmp_path / "run"))
    data["curves"][0]["roles"] = ["heavy", "knee", "light", "target"]
    data["candidates"][14]["widths"][0] = 0  # gone with its branch
    drawn = finetuning(data)
    svg(drawn)
    (name,) = [text for text in drawn.legends[0].get_texts() if text.get_text().startswith("heavy, knee")]
    assert name.get_window_extent().x1 <= drawn.bbox.x1
    (cross,) = [line for axes in layers(data).axes for line in axes.lines if len(line.get_xdata())]
    assert (cross.get_marker(), list(cross.get_xdata())) == ("x", [0])


def test_a_target_is_drawn_as_any_other_solution(tmp_path):
    path = make_run(tmp_path / "run")
    with RunFolder.open(path) as run:
        light = run.history.get_fact("solution/light")
        run.history.set_fact("solution/target", {**light, "id": 13})
        run.history.set_fact("test_images", 100)
    data = collect(path)
    assert [one["role"] for one in data["solutions"]] == ["heavy", "knee", "light", "target"]
    assert data["commands"]["export"]["target"].endswith("--solution target --format onnx")
    assert [data["solutions"][3][key] for key in ("wrong", "test_error")] == [20, 0.2]
    low, high = data["solutions"][3]["interval"]
    assert (round(low, 3), round(high, 3)) == (0.133, 0.289)
    texts = {text.get_text() for text in population(data).axes[0].texts}
    assert {"heavy", "knee", "light", "target"} <= texts
    assert data["candidates"][13]["test_error"] == 0.2 and data["candidates"][5]["test_error"] is None
