"""The examples of docs/extending.md, run as they stand there: data sets, backends, formats, sections."""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from deeppruning.backends.registry import BACKENDS
from deeppruning.cli.commands.data import data
from deeppruning.cli.options.backend import BackendChoice, backend_options
from deeppruning.data.registry import DATA_SETS, load_data
from deeppruning.errors import InputError
from deeppruning.exporting import FORMATS, Export
from deeppruning.registry import Registry
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.section import SECTIONS
from report_runs import make_run
from search_helpers import tiny_net

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
REGISTRIES: tuple[Registry[Any], ...] = (DATA_SETS, BACKENDS, FORMATS, SECTIONS)


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Imports the example under a heading as a file of its own; what it entered is taken out again."""
    before = [set(registry) for registry in REGISTRIES]

    def load(heading: str) -> ModuleType:
        section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
        file = tmp_path / "example.py"
        file.write_text(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0])
        spec = importlib.util.spec_from_file_location("example", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    for registry, known in zip(REGISTRIES, before, strict=True):
        for name in set(registry) - known:
            registry.remove(name)


def test_a_data_set(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    example("A data set")
    images = np.zeros((20, 8, 8), np.uint8)
    np.savez(tmp_path / "stripes.npz", images=images, labels=np.arange(20) % 2)
    splits = load_data("stripes", data_dir=tmp_path)
    assert (len(splits.train), len(splits.test)) == (16, 4)
    listed = CliRunner().invoke(data, ["--json", "--data-dir", str(tmp_path)], catch_exceptions=False)
    found = {record["name"]: record["found"] for record in json.loads(listed.output)}
    assert found["stripes"] == str(tmp_path / "stripes.npz")
    with pytest.raises(InputError, match="did you mean stripes"):
        load_data("stripe", data_dir=tmp_path)


def test_a_backend(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    module = example("A backend")
    notes = tmp_path / "notes.txt"

    @click.command()
    @backend_options()
    def command(**settings: Any) -> None:
        made = BackendChoice.take(settings).or_as_in({}).make(1, "cpu", print)
        assert isinstance(made, module.NotedBackend)
        with made, made.open(lambda base, item: base // item, 12) as session:
            outcomes = session.map([("a", 3), ("b", 0)])
            assert [outcome.value for outcome in outcomes] == [4, None]

    CliRunner().invoke(command, ["--noted-file", str(notes)], catch_exceptions=False)
    assert notes.read_text() == "a done\nb failed\n"
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "--backend local|ray|noted" in shown and "--noted-file FILE" in shown
    with pytest.raises(InputError, match=r"--noted-file .*--backend noted"):
        BackendChoice(backend="local", options={"noted_file": "x"})
    stored = BackendChoice(options={"noted_file": "x"}).or_as_in({}).table(threads=1)
    assert stored == {"backend": "noted", "noted_file": "x"}


def test_an_export_format(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    example("An export format")
    chosen, model = FORMATS.find("npz"), tiny_net()
    assert chosen.write(Export(model, lambda: pytest.fail("not run")), tmp_path / "tiny.npz") == 0.0
    with np.load(tmp_path / "tiny.npz") as written:
        assert np.array_equal(written["stem.weight"], model.stem.weight.detach().numpy())
    with pytest.raises(InputError, match="npz holds weights only"):
        chosen.check(normalize=True)
    with pytest.raises(InputError, match="unknown format 'npy'; did you mean npz"):
        FORMATS.find("npy")


def test_a_report_section(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    plain = collect(run)
    example("A report section")
    shown = collect(run)
    (found,) = shown.pop("tables")
    assert found["rows"] == [["0", "1", "1.5"], ["1", "1", "1.5"], ["2", "1", "1.5"]]
    assert shown == {key: value for key, value in plain.items() if key != "tables"}
    assert "Slowest candidates" in render(collect(run))


def test_a_name_is_entered_once(example: Callable[[str], ModuleType]) -> None:
    example("An export format")
    with pytest.raises(InputError, match="format named 'npz'"):
        example("An export format")


def test_what_the_registries_hold() -> None:
    assert list(DATA_SETS) == ["digits", "cifar10", "cifar100", "mnist", "fashion-mnist"]
    assert list(BACKENDS) == ["local", "ray"]
    assert {name: FORMATS[name].suffix for name in FORMATS} == {
        "onnx": ".onnx",
        "torch-export": ".pt2",
        "safetensors": ".safetensors",
        "hub": "-hub",
        "transformers": "-transformers",
    }
    assert list(SECTIONS) == ["candidates", "origins", "solutions", "layers", "curves", "bench", "rivals"]
