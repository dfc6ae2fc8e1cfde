"""The examples of docs/extending.md: each runs as it stands there, and does what the page says."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deeppruning as dp
from deeppruning.comparison import METHODS
from deeppruning.comparison.results import read_comparison
from deeppruning.errors import InputError
from deeppruning.objectives import OBJECTIVES, Counted, Params, register_objective
from deeppruning.registry import Registry
from deeppruning.reporting.data import collect
from deeppruning.reporting.sections.rivals import read_rivals
from deeppruning.searching.evaluations import EVALUATIONS
from deeppruning.searching.importance import CRITERIA, Evidence, genome_by
from deeppruning.tracking import TRACKERS
from deeppruning.training.evaluate import evaluate
from search_helpers import digits, tiny_net

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
REGISTRIES: tuple[Registry[Any], ...] = (CRITERIA, EVALUATIONS, OBJECTIVES, METHODS, TRACKERS)


def blocks(heading: str) -> list[str]:
    """The code of one section of the page: first what is added, then how it is used."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the page takes for granted; what an example registers is gone after the test."""
    before = [(registry, {name: registry[name] for name in registry}) for registry in REGISTRIES]
    monkeypatch.chdir(tmp_path)
    train, test = digits(train=60, test=40)
    names = {"model": tiny_net(), "example_input": torch.zeros(1, 1, 8, 8), "train": train, "test": test}
    yield {"__name__": "script", **names}
    for registry, entries in before:
        registry._entries = entries


def run(heading: str, names: dict[str, Any]) -> dict[str, Any]:
    for code in blocks(heading):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_a_filter_criterion(example: dict[str, Any]) -> None:
    found = run("A filter criterion", example)
    graph, model = found["graph"], found["model"]
    full = graph.flops(graph.full_genome())
    assert graph.flops(found["genome"]) == pytest.approx(0.5 * full, rel=0.1)
    assert found["thin"](found["example_input"]).shape == (1, 10)
    tied = next(group for group in graph.groups if len(group.layers) == 2)
    weights = torch.cat([model.stem.weight[2].flatten(), model.outer.weight[2].flatten()])
    scores = CRITERIA["l2"].scores(Evidence(graph, model))
    assert scores[tied.genes[2]] == pytest.approx(float(weights.detach().norm()))
    assert [name for name in METHODS if name.startswith("l2")] == ["l2", "l2+refit"]
    assert METHODS["l2"].kind == "criteria"


@pytest.mark.slow
def test_an_evaluation_kind(example: dict[str, Any]) -> None:
    found = run("An evaluation kind", example)
    graph = dp.ChannelGraph(found["model"], found["example_input"])
    candidates = found["result"].candidates
    assert len(candidates) == 11
    for one in candidates[:4]:
        assert one.train_error == evaluate(graph.prune(one.genome), found["train"]).error


@pytest.mark.slow
def test_an_objective(example: dict[str, Any]) -> None:
    found = run("An objective", example)
    assert all(one.cost == one.genome.sum() for one in found["result"].candidates)
    axes = collect("runs/filters")["axes"]
    assert axes[0] == {"key": "cost", "label": "Filters"}
    assert [axis["key"] for axis in axes] == ["cost", "flops", "params"]
    graph = dp.ChannelGraph(found["model"], found["example_input"])
    population = np.ones((2, graph.num_genes), dtype=np.bool_)
    assert OBJECTIVES["filters"].count(graph, population).tolist() == [14, 14]
    assert OBJECTIVES["megabytes"].title == "Weights, MB"
    stored = sum(4 * tensor.numel() for tensor in found["model"].parameters()) + 4 * 12 + 8
    assert OBJECTIVES["megabytes"].measure(found["model"], None, "cpu") == stored / 1e6


def test_a_method_for_compare(example: dict[str, Any]) -> None:
    found = run("A method for compare", example)
    rows = {row.method: row for row in found["comparison"].rows}
    assert set(rows) == {"l1", "deepest-first"}
    shares = [row.flops / found["comparison"].original_flops for row in rows.values()]
    assert shares == pytest.approx([0.5, 0.5], abs=0.05)
    kinds = {"l1": "criteria", "deepest-first": "floors"}
    assert read_comparison(Path("runs/deepest/results.json")).kinds == kinds
    METHODS._entries.pop("deepest-first")  # a page is made where the method is not known
    shown = read_rivals(Path("runs/deepest"))
    assert shown is not None
    assert {method["name"]: method["kind"] for method in shown["methods"]} == kinds


FILES = {
    "searching.importance": ("A filter criterion", "CRITERIA", "l2"),
    "comparison.methods": ("A method for compare", "METHODS", "deepest-first"),
}


@pytest.mark.slow
def test_a_file_in_the_folder_is_all_it_takes(tmp_path: Path) -> None:
    script = ["import importlib, sys", f"sys.path.insert(0, {str(tmp_path)!r})"]
    for name, heading in {"added_objective": "An objective", "added_kind": "An evaluation kind"}.items():
        (tmp_path / f"{name}.py").write_text(blocks(heading)[0])  # their home is one file: scripts
        script.append(f"import {name}")
    for package, (heading, _, _) in FILES.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "added.py").write_text(blocks(heading)[0])
        folder = str(tmp_path / package)
        script.append(f"importlib.import_module('deeppruning.{package}').__path__.append({folder!r})")
    script += [
        "from deeppruning.comparison import METHODS",
        "from deeppruning.objectives import OBJECTIVES",
        "from deeppruning.searching.evaluations import EVALUATIONS",
        "from deeppruning.searching.importance import CRITERIA",
        *(f"assert {added!r} in {registry}" for _, registry, added in FILES.values()),
        "assert 'as-cut' in EVALUATIONS and 'filters' in OBJECTIVES",
        "from deeppruning.cli.main import cli",
        "cli(['compare', '--help-all'], standalone_mode=False)",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "flops|params|size|latency|filters|megabytes|FUNCTION" in shown
    assert "finetune|recalibrate|as-cut" in shown
    assert "after brief SGD (finetune), or with only" in shown
    assert "or as it is cut (as-cut)." in shown
    assert "deepest-first" in shown
    assert "l2+refit" in shown


def test_options_are_checked_without_torch() -> None:
    code = "import sys, deeppruning as dp; dp.SearchConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_names_that_cannot_be_entered(example: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="objective named 'flops'"):

        @register_objective
        class Flops(Counted):
            name = "flops"

            def count(self, graph: Any, genomes: Any) -> Any:
                return graph.flops(genomes)

    with pytest.raises(InputError, match=r"name of an objective.*'my/cost'"):

        @register_objective
        class Slash(Params):
            name = "my/cost"

    with pytest.raises(InputError, match=r"Nameless has no name"):

        @register_objective
        class Nameless(Counted):
            def count(self, graph: Any, genomes: Any) -> Any:
                return 0


def test_a_class_defined_anew_takes_its_old_place(example: dict[str, Any]) -> None:
    (code, _) = blocks("An objective")
    exec(compile(code, str(PAGE), "exec"), example)
    first = OBJECTIVES["filters"]
    exec(compile(code, str(PAGE), "exec"), example)
    assert OBJECTIVES["filters"] is not first
    assert [name for name in OBJECTIVES if name == "filters"] == ["filters"]


@pytest.mark.parametrize("options", [{"objective": "flop"}, {"evaluation": "recalibrat"}])
def test_misspelt_names_are_refused(options: dict[str, str], tmp_path: Path) -> None:
    kind, given = next(iter(options.items()))
    nearest = {"objective": "flops", "evaluation": "recalibrate"}[kind]
    known = {"objective": "flops, latency, params, size", "evaluation": "finetune, recalibrate, refit"}[kind]
    with pytest.raises(InputError) as refused:
        dp.prune(tiny_net(), *digits(train=60, test=40), run_dir=tmp_path, search=dp.SearchConfig(**options))
    assert str(refused.value) == f"unknown {kind} {given!r}; did you mean {nearest}? Known: {known}"


@pytest.mark.parametrize("table", [{"objective": ["flops"]}, {"evaluation": {"a": 1}}])
def test_values_of_another_kind_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=f"{next(iter(table))}.*{re.escape(repr(next(iter(table.values()))))}"
    ):
        dp.SearchConfig.from_table(table)


def test_flops_that_cannot_be_asked_for() -> None:
    graph = dp.ChannelGraph(tiny_net(), torch.zeros(1, 1, 8, 8))
    evidence = Evidence(graph, tiny_net())
    with pytest.raises(InputError, match="flops must lie above 0"):
        genome_by("l1", evidence, flops=0)
    with pytest.raises(InputError, match=r"unknown criterion 'entrop'; did you mean entropy"):
        genome_by("entrop", evidence, flops=100)
    with pytest.raises(InputError, match=r"Evidence\(graph, model, images\)"):
        genome_by("apoz", evidence, flops=100)


@pytest.mark.slow
def test_a_file_that_cannot_be_imported_is_an_error_every_time(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('half written')")
    script = f"""
import deeppruning.searching.importance as package
package.__path__.append({str(tmp_path)!r})
for _ in range(2):
    try:
        package.CRITERIA['l1']
    except RuntimeError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["half written"] * 2, done.stderr


@pytest.mark.parametrize("first", ["objectives", "searching.evaluations"])
def test_the_order_of_names_does_not_depend_on_what_is_imported_first(first: str) -> None:
    script = f"""
import deeppruning.{first}
from deeppruning.objectives import OBJECTIVES
from deeppruning.searching.evaluations import EVALUATIONS
print(*OBJECTIVES, *EVALUATIONS)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    names = ["flops", "params", "size", "latency", "refit", "finetune", "recalibrate"]
    assert done.stdout.split() == names, done.stderr


@pytest.mark.slow
def test_a_tracker(example: dict[str, Any], tmp_path: Path) -> None:
    found = run("A tracker", example)
    lines = [json.loads(line) for line in (tmp_path / "tracked.jsonl").read_text().splitlines()]
    assert [line["generation"] for line in lines if "generation" in line] == [1, 2]
    assert lines[-2]["final"]["knee/params"] == found["result"].knee.params
    assert lines[-1] == {"status": "finished"}
