"""What a run was started with: found the same when it goes on, and unfit things refused before it starts."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.cli.options.backend import BackendChoice
from deeppruning.data.images import ImageSet
from deeppruning.errors import DataError, DeepPruningError, InputError, RunError
from deeppruning.jobs.identity import describe_example
from deeppruning.jobs.prepare import Compute, check_patterns, prepare
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.runs import RunFolder
from deeppruning.searching.task import Task
from deeppruning.system.device import available_threads
from search_helpers import EXAMPLE, digits, outcome, quick_finetune, quick_search, tiny_net


def stops(event: Any) -> None:
    if type(event).__name__ == "GenerationDone":
        raise KeyboardInterrupt


class Judged(Task):
    """An error without any training."""

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        return (seed % 1000) / 1000


def parameters(model: nn.Module) -> float:
    return float(sum(parameter.numel() for parameter in model.parameters()))


def logarithm(model: nn.Module) -> float:
    return parameters(model) ** 0.25


class Measures:
    """A measurement: never the same twice."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: nn.Module) -> float:
        self.calls += 1
        return parameters(model) + self.calls / 1000


def start(folder: Path, **options: Any) -> dict[str, Any]:
    """A run that is stopped after a generation; gives what goes on with it."""
    given: dict[str, Any] = {"task": Judged(), "example_input": EXAMPLE, "workers": 1, **options}
    with pytest.raises(KeyboardInterrupt):
        dp.prune(tiny_net(), run_dir=folder, search=quick_search(), observer=stops, **given)
    return given


def test_another_objective_is_refused_and_the_same_goes_on(tmp_path: Path) -> None:
    given = start(tmp_path / "run", objective=parameters)
    for other in (logarithm, None):
        with pytest.raises(
            RunError, match=r"started with the objective function parameters \(\d+ for the .*"
        ):
            dp.resume(tmp_path / "run", tiny_net(), **{**given, "objective": other})

    def changed(model: nn.Module) -> float:
        return parameters(model) + 1

    changed.__qualname__ = "parameters"
    with pytest.raises(RunError, match=r"this is function parameters \(\d+ for the original network\)"):
        dp.resume(tmp_path / "run", tiny_net(), **{**given, "objective": changed})
    result = dp.resume(tmp_path / "run", tiny_net(), **given)
    assert all(candidate.cost == candidate.params for candidate in result.candidates)


def test_a_function_cannot_take_the_place_of_flops(tmp_path: Path) -> None:
    given = start(tmp_path / "run")
    with pytest.raises(RunError, match="started with the objective flops, this is function parameters"):
        dp.resume(tmp_path / "run", tiny_net(), **given, objective=parameters)


def test_a_measurement_is_known_by_its_name(tmp_path: Path) -> None:
    given = start(tmp_path / "run", objective=Measures())
    dp.resume(tmp_path / "run", tiny_net(), **{**given, "objective": Measures()})
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        kept = run.history.get_fact("objective")
    assert kept == {"name": "function Measures", "of_the_original": None}


def test_another_example_input_is_refused_but_not_other_values(tmp_path: Path) -> None:
    given = start(tmp_path / "run")
    larger = {**given, "example_input": torch.zeros(1, 1, 16, 16)}
    with pytest.raises(RunError, match="example input of 1x1x8x8 float32, this is 1x1x16x16 float32"):
        dp.resume(tmp_path / "run", tiny_net(), **larger)
    result = dp.resume(tmp_path / "run", tiny_net(), **{**given, "example_input": torch.randn(1, 1, 8, 8)})
    with pytest.raises(RunError, match="example input of 1x1x8x8"):
        dp.finetune(
            tmp_path / "run",
            tiny_net(),
            candidate=result.knee.id,
            task=Judged(),
            example_input=torch.zeros(1, 1, 16, 16),
        )


def test_examples_in_words() -> None:
    assert describe_example(
        {"x": torch.zeros(2, 3, dtype=torch.half), "y": [torch.tensor(1), "a", None]}
    ) == [
        "2x3 float16",
        "scalar int64",
        "str a",
        "NoneType",
    ]


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.toml").read_text()
    assert text.count(old) == 1, text
    (run / "config.toml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("offspring = 4", "offspring = 5", "search.offspring was 4 and is 5"),
        ("eval_lr = 0.1", "eval_lr = 0.2", "search.eval_lr was 0.1 and is 0.2"),
        ("epochs = 10", "epochs = 1", "finetune.epochs was 10 and is 1"),
        ("eval_augment = true\n", "", "search.eval_augment was True and is not given"),
    ],
)
def test_edited_options_are_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    run = tmp_path / "run"
    given = start(run)
    before = f"\n{old}"
    edit(run, before, f"\n{new}")
    with pytest.raises(RunError, match=f"{told}. Restore them"):
        dp.resume(run, tiny_net(), **given)
    with pytest.raises(RunError, match=told):
        dp.finetune(run, tiny_net(), candidate=0, task=Judged(), example_input=EXAMPLE)


def test_what_decides_nothing_may_be_edited(tmp_path: Path) -> None:
    given = start(tmp_path / "run", tables={"model": {"spec": "/here/net.py:make", "weights": "/here/w"}})
    given.pop("tables")
    edit(tmp_path / "run", "workers = 1", "workers = 3")
    edit(tmp_path / "run", 'device = "auto"', 'device = "cpu"')
    edit(tmp_path / "run", "/here/net.py:make", "/there/net.py:make")
    edit(tmp_path / "run", '"/here/w"', '"/there/w"')
    assert len(dp.resume(tmp_path / "run", tiny_net(), **given).solutions) == 3


def test_a_run_that_kept_no_options_goes_on(tmp_path: Path) -> None:
    given = start(tmp_path / "run")
    with RunFolder.open(tmp_path / "run") as run:
        for fact in ("options", "objective", "example_input"):
            run.history._write_rows("DELETE FROM facts WHERE key = ?", [(fact,)])
    dp.resume(tmp_path / "run", tiny_net(), **given)
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        assert run.history.get_fact("options")["search.offspring"] == 4


@pytest.mark.slow
def test_the_seed_of_fine_tuning_counts(tmp_path: Path) -> None:
    train, test = digits()
    weights = {}
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        result = dp.prune(
            tiny_net(), train, test, run_dir=tmp_path / name, search=quick_search(generations=1),
            finetune=quick_finetune(epochs=1, seed=seed), workers=1,
        )  # fmt: skip
        weights[name] = result.knee.model.state_dict()["stem.weight"]
    assert torch.equal(weights["a"], weights["c"])
    assert not torch.equal(weights["a"], weights["b"])
    assert outcome(tmp_path / "a")["candidates"] == outcome(tmp_path / "b")["candidates"]


def test_workers_are_counted_in_one_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system has no processor affinity")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert available_threads() == 5
    for threads, expected in ((1, 5), (2, 2), (9, 1)):
        assert Compute().worker_count(threads) == BackendChoice().table(threads)["workers"] == expected
    train, _ = digits()
    for wrong in (0, -1):
        with pytest.raises(InputError, match=f"workers must be a whole number of at least 1, .*got {wrong}"):
            dp.prune(tiny_net(), train, run_dir=tmp_path / "run", workers=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


class Sees(nn.Module):
    """Notes how much comes in, and on which device."""

    def __init__(self, seen: list[tuple[int, str]]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.note = seen.append

    def forward(self, x: Tensor) -> Tensor:
        self.note((len(x), x.device.type))
        out: Tensor = self.conv(x)
        return out


def test_latency_is_measured_under_the_conditions_that_are_asked_for() -> None:
    """A device that this machine does not have may be that of a cluster's workers."""
    seen: list[tuple[int, str]] = []
    conditions = Conditions.of(dp.SearchConfig(latency_batch=3), "cuda:7")
    assert conditions == Conditions("torch", 3, 1, "cuda:7")
    for example in (EXAMPLE, (EXAMPLE,), [EXAMPLE], {"x": EXAMPLE}):
        assert measure_networks([Sees(seen)], example, conditions, turns=1)[0] > 0
        assert seen[-4:] == [(3, "cpu")] * 4
    train, _ = digits()
    job = prepare(tiny_net(), train, compute=Compute(1, "cpu"), measure=False)
    assert job.context.device == "cpu"


def test_an_exclude_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    train, _ = digits()
    with pytest.raises(InputError, match="unknown layer in exclude 'iner'; did you mean inner"):
        dp.prune(tiny_net(), train, run_dir=tmp_path / "run", search=quick_search(exclude=("outer", "iner")))
    assert not (tmp_path / "run").exists()
    for pattern in ("inn*", "linear", "*"):
        check_patterns((pattern,), tiny_net(), dp.ChannelGraph(tiny_net(), EXAMPLE))


@pytest.mark.parametrize("name", ["train", "test", "finetune"])
def test_what_a_task_would_ignore_is_refused(tmp_path: Path, name: str) -> None:
    train, test = digits()
    given = {"train": train, "test": test, "finetune": quick_finetune()}[name]
    with pytest.raises(InputError, match=f"{name} would be ignored"):
        dp.prune(tiny_net(), run_dir=tmp_path / "run", task=Judged(), example_input=EXAMPLE, **{name: given})  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def unfit(kind: str, test: ImageSet) -> Any:
    pixels, labels = test.images, test.labels
    broken = pixels.float()
    broken[3, 0, 0, 0] = float("nan")
    return {
        "empty": (pixels[:0], labels[:0]),
        "channels": (pixels.expand(-1, 3, -1, -1), labels),
        "size": (pixels[:, :, :6, :6], labels),
        "type": (pixels.float(), labels),
        "labels": (pixels, labels + 5),
        "classes": ImageSet(pixels, labels, tuple("jihgfedcba")),
        "nan": ImageSet(broken, labels, test.classes),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "no test images"),
        ("channels", r"same shape, got \(1, 8, 8\) and \(3, 8, 8\)"),
        ("size", r"same shape, got \(1, 8, 8\) and \(1, 6, 6\)"),
        ("type", "same type, .* got torch.uint8 and torch.float32"),
        ("labels", r"10 outputs but the data has 15 classes: test image \d+ has label 14"),
        ("classes", "same classes"),
        ("nan", "same type"),
    ],
)
def test_an_unfit_test_set_is_refused_before_the_search(tmp_path: Path, kind: str, message: str) -> None:
    train, test = digits()
    if kind == "classes":
        train = replace(train, classes=tuple("abcdefghij"))
    with pytest.raises(DataError, match=message):
        dp.prune(tiny_net(), train, unfit(kind, test), run_dir=tmp_path / "run", search=quick_search())
    assert not (tmp_path / "run").exists()


def test_labels_are_held_against_the_outputs_of_the_network(tmp_path: Path) -> None:
    train, test = digits()
    labels = train.labels.clone()
    labels[7] = 10
    given = {"run_dir": tmp_path / "run", "search": quick_search(), "workers": 1}
    with pytest.raises(
        DataError, match=r"10 outputs but .* 11 classes: training image 7 has label 10; correct"
    ):
        dp.prune(tiny_net(), (train.images, labels), **given)
    with pytest.raises(DeepPruningError, match="give every class at least one image"):
        dp.prune(tiny_net(), (train.images[:1], train.labels[:1] * 0), test, **given)
    assert not (tmp_path / "run").exists()


class Wrapped(nn.Module):
    """Class scores in something else, as many libraries return them."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.net, self.wrap = tiny_net(), wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.net(x))


@pytest.mark.parametrize("wrap", [lambda y: {"y": y}, lambda y: SimpleNamespace(y=y), lambda y: (y, y)])
def test_outputs_that_are_no_class_scores_point_to_the_search(wrap: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got (dict|SimpleNamespace|tuple); .* dp\.search"):
        dp.prune(Wrapped(wrap), *digits(), run_dir=tmp_path / "run", workers=1)


def test_images_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    train, _ = digits()
    for bad, good, part in ((0, 1, "training"), (1, 0, "test")):
        sets = [ImageSet(train.images.float().clone(), train.labels, train.classes) for _ in range(2)]
        sets[bad].images[0, 0, 0, 0] = float("inf")
        assert bool(torch.isfinite(sets[good].images).all())
        with pytest.raises(DataError, match=f"{part} images hold values that are not finite"):
            dp.prune(tiny_net(), *sets, run_dir=tmp_path / "run", search=quick_search())
    assert not (tmp_path / "run").exists()


def test_a_broken_network_is_refused_before_the_search(tmp_path: Path) -> None:
    train, test = digits()
    model = tiny_net()
    model.norm.running_var[2] = float("nan")
    with pytest.raises(DeepPruningError, match=r"not finite \(nan or inf\): norm.running_var"):
        dp.prune(model, train, test, run_dir=tmp_path / "run", search=quick_search())
    assert not (tmp_path / "run").exists()
    huge = tiny_net()
    huge.linear.weight.data.fill_(3e38)
    with pytest.raises(InputError, match=r"outputs of the network are not finite"):
        dp.prune(huge, train, test, run_dir=tmp_path / "huge", search=quick_search(), workers=1)
