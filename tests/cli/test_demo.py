"""`deeppruning demo`, which `make demo` runs: the whole job on embedded data, here with little effort."""

from pathlib import Path

from cli_calls import call
from deeppruning.cli.commands import demo
from search_helpers import quick_finetune, quick_guided


def test_the_demo_ends_with_a_report(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "TRAIN_EPOCHS", 1)
    monkeypatch.setattr(demo, "SEARCH", quick_guided(offspring=2, generations=1))
    monkeypatch.setattr(demo, "FINETUNE", quick_finetune(epochs=0))
    said = call("demo", "--out", tmp_path / "demo", "--workers", 1).output
    assert f"report: {tmp_path / 'demo' / 'report.html'}" in said
    assert (tmp_path / "demo" / "report.html").is_file()
    assert {path.stem for path in (tmp_path / "demo").glob("*.safetensors")} == {"knee", "heavy", "light"}
