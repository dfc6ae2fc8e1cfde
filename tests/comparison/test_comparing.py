"""Whole comparisons on real digits: matched to a run, stopped and gone on with, and refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import deeppruning as dp
from deeppruning.cli.main import cli
from deeppruning.comparison import Comparison, MethodDone
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.reporting.sections.rivals import read_rivals
from deeppruning.runs import RunFolder
from search_helpers import digits, quick_finetune, quick_search, tiny_net

METHODS = "l1,uniform-width,es-plus,random-search"


def paper_search(**options: Any) -> dp.SearchConfig:
    quick: dict[str, Any] = {"offspring": 4, "generations": 3, "sample": 60, "eval_epochs": 1}
    return dp.SearchConfig.paper(**{**quick, "eval_batch_size": 20, **options})


def compare(**options: Any) -> Comparison:
    train, test = digits()
    return dp.compare(tiny_net(), train, test, workers=1, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "thin"
    train, test = digits()
    dp.prune(
        tiny_net(),
        train,
        test,
        run_dir=folder,
        search=paper_search(),
        finetune=quick_finetune(epochs=1),
        workers=1,
    )
    return folder


@pytest.fixture(scope="module")
def compared(run: Path) -> Comparison:
    return compare(match=run, methods=METHODS, seeds=2)


def test_rows_means_and_searches(run: Path, compared: Comparison) -> None:
    methods = {"deeppruninges", *METHODS.split(",")}
    assert [target.name for target in compared.targets] == ["heavy", "knee", "light"]
    assert {(row.method, row.seed, row.target) for row in compared.rows} == {
        (method, seed, role) for method in methods for seed in (0, 1) for role in ("heavy", "knee", "light")
    }
    for mean in compared.means():
        rows = [row for row in compared.rows if (row.method, row.target) == (mean.method, mean.target)]
        assert mean.error_after == pytest.approx(sum(row.error_after for row in rows) / 2)
        gap = abs(rows[0].error_after - rows[1].error_after)
        assert mean.error_spread == pytest.approx(gap / 2**0.5)
    assert {(search.method, search.seed) for search in compared.searches} == {
        (method, seed) for method in ("es-plus", "random-search") for seed in (0, 1)
    }
    written = json.loads((run / "compare" / "results.json").read_text())
    assert written == json.loads(json.dumps(compared.to_table()))


def test_our_picks_take_part_as_the_run_has_them(run: Path, compared: Comparison) -> None:
    with RunFolder.open(run, read_only=True) as opened:
        facts = opened.history.facts()
        evaluated = opened.history.evaluations()
    ours = {row.target: row for row in compared.rows if row.method == "deeppruninges" and row.seed == 0}
    for role, row in ours.items():
        saved = facts[f"solution/{role}"]
        assert row.flops == saved["flops"]
        # The same cut, the same seed, the same options: the comparison's training is the run's.
        assert row.error_after == saved["test_error"]
    plus = next(search for search in compared.searches if (search.method, search.seed) == ("es-plus", 0))
    assert plus.evaluations == len(evaluated)  # taken over from the run, none evaluated again


def test_gone_on_with_it_is_the_same_and_may_grow(
    run: Path, compared: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Any] = []
    again = compare(match=run, methods=METHODS, seeds=2, observer=told.append)
    assert sorted(again.rows, key=str) == sorted(compared.rows, key=str)
    assert all(isinstance(event, MethodDone) for event in told)  # no epoch was trained
    assert capsys.readouterr().out == ""  # nobody looks on
    more = compare(match=run, methods="apoz", seeds=1, progress=True)
    *before, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in (*before, last)] == ["1/2", "2/2"]
    assert re.search(r" apoz, seed 0: heavy [\d.]+ -> [\d.]+ %, knee ", last)
    assert str(more).count("\napoz ") == repr(more).count("\nrandom-search ") - 2 == 3
    assert {row.method for row in more.rows} == {"deeppruninges", "apoz", *METHODS.split(",")}
    assert Comparison.from_table(more.to_table()).to_table() == more.to_table()


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_workers(tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        train, test = digits()
        comparison = dp.compare(
            tiny_net(),
            train,
            test,
            shares=(0.6,),
            methods="l1-sensitivity,auto-balanced,l1+refit,random-widths",
            images=100,
            test_images=50,
            search=quick_search(offspring=3, generations=2, evaluation="recalibrate"),
            finetune=quick_finetune(epochs=1),
            run_dir=tmp_path / str(workers),
            workers=workers,
        )
        found.append([(row.method, row.flops, row.error_before, row.error_after) for row in comparison.rows])
    assert found[0] == found[1]


def test_refusals_come_before_any_work(run: Path, tmp_path: Path) -> None:
    folder: dict[str, Any] = {"run_dir": tmp_path / "a", "search": quick_search()}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"methods": "l1"}, "needs a folder"),
        ({"run_dir": tmp_path / "a"}, "how large"),
        ({**folder, "shares": (1.5,)}, "below 1"),
        ({**folder, "shares": (0.0001,)}, "least that this"),
        ({**folder, "shares": (0.5,), "seeds": 0}, "seeds"),
        ({**folder, "shares": (0.5,), "images": 10**6}, "only 180"),
        ({**folder, "shares": (0.5,), "test_images": 10**6}, "only 100"),
        ({**folder, "shares": (0.5, 0.5)}, "must differ"),
        ({**folder, "shares": [i / 20 for i in range(4, 20)]}, "more than the 15"),
        (
            {"run_dir": tmp_path / "a", "shares": (0.5,), "search": quick_search(objective="params")},
            "equal FLOPs",
        ),
        ({"match": run, "shares": (0.5,)}, "come from the run"),
        ({"match": run, "search": quick_search()}, "come from the run"),
        ({"match": tmp_path / "nowhere"}, "not a folder"),
    ]
    for options, message in cases:
        with pytest.raises((InputError, RunError), match=message):
            compare(
                **{"search": quick_search(), **options}
                if "shares" in options and "match" not in options
                else options
            )
    assert not (tmp_path / "a").exists()


def test_another_comparison_in_the_folder_is_refused(run: Path, compared: Comparison) -> None:
    with pytest.raises(RunError, match="other finetune"):
        compare(match=run, methods="l1", finetune=quick_finetune(epochs=3))
    with pytest.raises(RunError, match="holds a run"):
        compare(shares=(0.5,), methods="l1", run_dir=run)
    with pytest.raises(RunError, match="holds a comparison, not a run"):
        RunFolder.open(run / "compare")
    train, test = digits()
    with pytest.raises(DeepPruningError, match="another network"):
        dp.compare(tiny_net(seed=1), train, test, match=run, methods="l1", workers=1)


def test_other_data_is_refused(run: Path, compared: Comparison, tmp_path: Path) -> None:
    train, test = digits(train=150)
    with pytest.raises(RunError, match="other training data"):
        dp.compare(tiny_net(), train, test, match=run, methods="l1", workers=1)
    train, test = digits(test=90)
    with pytest.raises(RunError, match="other data"):
        dp.compare(tiny_net(), train, test, match=run, methods="l1", workers=1)
    options: dict[str, Any] = {"run_dir": tmp_path / "a", "methods": "l1", "search": quick_search()}
    compare(shares=(0.3, 0.8), finetune=quick_finetune(epochs=1), **options)
    with pytest.raises(RunError, match="other flops, targets"):
        compare(shares=(0.8, 0.3), finetune=quick_finetune(epochs=1), **options)


def test_stopped_anywhere_it_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    def rows(folder: Path, stops: int) -> list[Any]:
        events = 0

        def observer(event: Any) -> None:
            nonlocal events
            events += 1
            if events > stops >= 0:
                raise KeyboardInterrupt

        options: dict[str, Any] = {"shares": (0.6, 0.4), "methods": "uniform-width,es-plus"}
        options["search"] = quick_search(generations=2)
        found = compare(finetune=quick_finetune(epochs=1), run_dir=folder, observer=observer, **options).rows
        return [(row.method, row.target, row.flops, row.error_before, row.error_after) for row in found]

    undisturbed = rows(tmp_path / "a", -1)
    for stops in (1, 2):  # each time a little further: within the first epochs, between methods
        with pytest.raises(KeyboardInterrupt):
            rows(tmp_path / "b", stops)
    assert rows(tmp_path / "b", -1) == undisturbed


def test_a_network_that_diverges_has_no_error(tmp_path: Path) -> None:
    found = compare(
        shares=(0.6,),
        methods="l1,auto-balanced",
        run_dir=tmp_path / "a",
        search=quick_search(),
        finetune=quick_finetune(epochs=2, lr=1e30),
    )
    errors = {row.method: (row.error_before is None, row.error_after) for row in found.rows}
    assert errors == {"l1": (False, None), "auto-balanced": (True, None)}
    assert [(mean.error_after, mean.failed) for mean in found.means()] == [(None, 1), (None, 1)]
    assert Comparison.from_table(json.loads(json.dumps(found.to_table()))).rows == found.rows
    assert str(found).count(" failed ") == 3
    assert read_rivals(tmp_path / "a") is None  # nothing to plot


def test_a_run_that_is_not_over_cannot_be_matched(tmp_path: Path) -> None:
    train, test = digits()

    def stop(event: Any) -> None:
        if type(event).__name__ == "Started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dp.prune(
            tiny_net(), train, test, run_dir=tmp_path / "run", search=quick_search(), workers=1, observer=stop
        )
    with pytest.raises(RunError, match=r"not over.*deeppruning resume"):
        compare(match=tmp_path / "run")


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    def call(*arguments: str) -> Any:
        return CliRunner().invoke(cli, list(arguments))

    base, thin = tmp_path / "base", tmp_path / "thin"
    trained = call("train", "resnet20", "--epochs", "1", "--out", str(base), "--quiet")
    assert trained.exit_code == 0, trained.output
    weights = ("--weights", str(base / "model.safetensors"))
    small = ("--offspring", "2", "--generations", "1", "--sample", "20", "--evaluation", "recalibrate")
    pruned = call("prune", "resnet20", *weights, *small, "--finetune-epochs", "0", "--out", str(thin),
                  "--workers", "1", "--quiet")  # fmt: skip
    assert pruned.exit_code == 0, pruned.output
    match = ("--match", str(thin), "--images", "50", "--workers", "1")
    done = call("compare", "resnet20", *weights, *match, "--methods", "l1", "--finetune-epochs", "1")
    assert done.exit_code == 0, done.output
    assert "l1, seed 0" in done.output
    assert (thin / "compare" / "plots" / "rivals.svg").exists()
    assert "l1" in (thin / "report.html").read_text()
    as_json = call(
        "compare", "resnet20", *weights, *match, "--methods", "l1", "--finetune-epochs", "1", "--json"
    )
    finished = json.loads(as_json.stdout.splitlines()[-1])
    assert finished["event"] == "finished"
    assert {row["method"] for row in finished["rows"]} == {"deeppruninges", "l1"}
    for extra, message in (
        (("--offspring", "3"), "leave them out"),
        (("--methods", "l2"), "l2"),
        (("--shares", "half"), "numbers such as"),
    ):
        refused = call("compare", "resnet20", *weights, *match, *extra)
        assert isinstance(refused.exception, DeepPruningError)
        assert message in str(refused.exception)
