"""The calls from Python: the same parameters in the same order, ordinary errors, a cut without a search."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.errors import GraphError, InputError
from deeppruning.limits import Limits
from deeppruning.targets.aiming import whole_figures
from search_helpers import EXAMPLE, digits, tiny_net

CALLS = ("prune", "resume", "pick", "finetune", "search", "compare", "cut", "export", "bench", "report")
ON_RUNS = {
    "resume": ["run_dir", "model", "train", "test"],
    "pick": ["run_dir", "model", "train", "test"],
    "finetune": ["run_dir", "model", "train", "test"],
    "export": ["run_dir", "model"],
    "bench": ["run_dir", "model"],
}


@pytest.mark.parametrize("name", CALLS)
def test_parameters_are_named_annotated_and_refused_when_misspelt(name: str) -> None:
    call = getattr(dp, name)
    parameters = inspect.signature(call).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert kinds.isdisjoint({inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL})
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters.values())
    if "device" in parameters:
        assert parameters["device"].default == "auto"
    with pytest.raises(TypeError, match="modle"):
        call(modle=1)


@pytest.mark.parametrize("name", ON_RUNS)
def test_calls_on_a_run_take_the_same_in_the_same_order(name: str) -> None:
    parameters = inspect.signature(getattr(dp, name)).parameters
    positional = [key for key, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == ON_RUNS[name]


def test_what_recurs_stands_in_one_order() -> None:
    order = list(inspect.signature(dp.prune).parameters)
    for name in ("resume", "pick", "finetune", "search", "compare"):
        shared = [key for key in inspect.signature(getattr(dp, name)).parameters if key in order]
        recurring = [key for key in shared if key not in ("run_dir", "search", "finetune", "target")]
        assert recurring == sorted(recurring, key=order.index)


def test_options_in_a_dict_are_answered_with_how_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"SearchConfig, got {'bins': 3} .*write SearchConfig\(name=value"):
        dp.search(nn.Identity(), None, search={"bins": 3})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"FinetuneConfig, got {'epochs': 3}"):
        dp.prune(tiny_net(), digits()[0], run_dir=tmp_path, finetune={"epochs": 3})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"torch.nn.Module, got str"):
        dp.prune("resnet20", digits()[0], run_dir=tmp_path / "run")  # type: ignore[arg-type]


def wide() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "by"), [("flops=50%", "l1"), ("params=2k", "l1"), ("size=30%,flops=90%", "random")]
)
def test_one_cut_meets_its_limits_from_below(limits: str, by: str) -> None:
    model, given = wide(), Limits.of(limits)
    thin = dp.cut(model, EXAMPLE, by=by, **given.to_table())  # type: ignore[arg-type]
    cut, whole = whole_figures(dp.ChannelGraph(thin, EXAMPLE)), whole_figures(dp.ChannelGraph(model, EXAMPLE))
    used = [cut[name] / most for name, most in given.most(whole).items()]
    assert 0.85 < max(used) <= 1.0
    assert thin.training and thin(EXAMPLE).shape == model(EXAMPLE).shape


def test_a_cut_keeps_the_largest_filters_and_a_refit_brings_it_nearer() -> None:
    model, inputs = wide().eval(), digits(200)[0].images.float()
    norms = model[0].weight.detach().abs().sum((1, 2, 3))
    thin = dp.cut(model, EXAMPLE, flops=0.5, by="l1")
    kept = thin[0].weight.shape[0]
    assert torch.equal(thin[0].weight, model[0].weight[norms.topk(kept).indices.sort().values])
    refitted = dp.cut(model, EXAMPLE, flops=0.5, by="l1", inputs=inputs)
    with torch.no_grad():
        gaps = [float((net(inputs) - model(inputs)).norm()) for net in (refitted, thin)]
    assert gaps[0] < 0.7 * gaps[1] and not refitted.training


def test_a_cut_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(InputError, match=r"flops=0\.5"):
        dp.cut(wide(), EXAMPLE)
    with pytest.raises(InputError, match=r"flops=0\.01%.*ask for flops="):
        dp.cut(wide(), EXAMPLE, flops="0.01%")
    with pytest.raises(InputError, match=r"'l3'.*l1"):
        dp.cut(wide(), EXAMPLE, flops=0.5, by="l3")
    with pytest.raises(InputError, match="unknown layer in exclude 'nothere'"):
        dp.cut(wide(), EXAMPLE, flops=0.5, exclude=["nothere"])
    with pytest.raises(
        InputError, match=r"write \['head\.\*'\]"
    ):  # letter by letter, "*" would be all layers
        dp.cut(wide(), EXAMPLE, flops=0.5, exclude="head.*")
    with pytest.raises(InputError, match=r"example_input is empty \(shape \(0, "):
        dp.cut(wide(), EXAMPLE[:0], flops=0.5)


def test_networks_that_hold_no_weights_are_refused_with_advice() -> None:
    nowhere = wide().to("meta")
    calls = (
        lambda: dp.ChannelGraph(nowhere, EXAMPLE),
        lambda: dp.cut(nowhere, EXAMPLE, flops=0.5),
        lambda: dp.search(nowhere, digits(40)[0].images.float()),
    )
    for call in calls:
        with pytest.raises(GraphError, match=r"meta device.*load_state_dict"):
            call()


def test_a_class_or_a_network_in_the_wrong_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got function; write dp\.load"):
        dp.load(tmp_path / "knee.safetensors", wide)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"got Sequential; make one of the network"):
        dp.refit(wide(), [1], EXAMPLE)  # type: ignore[arg-type]


def test_a_genome_may_come_out_of_a_computation_with_gradients() -> None:
    graph = dp.ChannelGraph(wide(), EXAMPLE)
    bits = torch.ones(graph.num_genes, requires_grad=True)
    assert graph.flops(bits) == graph.flops(graph.full_genome())


def test_importing_a_call_draws_none_of_the_callers_random_numbers() -> None:
    code = (
        "import random, torch, deeppruning as dp; random.seed(3); dp.search; dp.export; "
        "assert random.random() == random.Random(3).random()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_search_is_aimed_at_its_target() -> None:
    inputs = digits(60)[0].images.float()
    options = dp.SearchConfig(offspring=4, generations=2, round_to=1)
    front = dp.search(wide(), inputs, search=options, target={"flops": 0.3}, workers=1)
    near = [one for one in front.candidates if 0.27 < one.flops / front.original.flops <= 0.3]
    free = dp.search(wide(), inputs, search=options, workers=1)
    assert len(near) > sum(0.27 < one.flops / free.original.flops <= 0.3 for one in free.candidates)
    assert front.best(flops=0.3).flops <= 0.3 * front.original.flops
    with pytest.raises(InputError, match="no labels"):
        dp.search(wide(), inputs, target={"error": "5%"})


def test_names_and_help_are_shown_without_waiting_for_torch() -> None:
    program = (
        "import sys, deeppruning; from deeppruning.cli.main import cli; dir(deeppruning); "
        "cli(['--help'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "prune" in done.stdout


def test_public_names_are_listed_and_lead_somewhere() -> None:
    shown = [name for name in dir(dp) if not name.startswith("_")]
    assert shown == sorted(name for name in dp.__all__ if not name.startswith("_"))
    assert {*CALLS, "load", "save", "Result", "Solution", "Front", "create_model"} <= set(shown)
    assert [name for name in dp.__all__ if getattr(dp, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'prun'"):
        dp.prun  # noqa: B018
