"""The tutorial runs from its first cell to its last, in IPython, and shows what it promises."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("IPython")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


@pytest.fixture(scope="module")
def shown() -> dict[str, dict[str, str]]:
    """What each cell of code puts out, by the first line of the cell.

    That takes half a minute; test_docs.py runs the same calls as the README shows them.
    """
    program = [sys.executable, str(Path(__file__).parent / "run_notebook.py"), str(NOTEBOOK)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    names = [cell["source"][0].strip() for cell in CELLS if cell["cell_type"] == "code"]
    return dict(zip(names, json.loads(done.stdout), strict=True))


def figures(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(\d+\.\d+) %", text)]


@pytest.mark.slow
def test_the_result_is_a_table_and_a_plot(shown: dict[str, dict[str, str]]) -> None:
    table = shown["result"]["text/plain"].splitlines()
    rows = [line.split()[0] for line in table]
    assert rows[:5] == ["network", "original", "heavy", "knee", "light"] and rows[-1] == "run"
    page = ElementTree.fromstring(shown["result"]["text/html"])
    assert len(list(page.iter("tr"))) == 5
    assert len(list(page.iter("{http://www.w3.org/2000/svg}use"))) > 20
    (knee_error, saved), original_error = figures(table[3]), figures(table[1])[0]
    assert original_error < 5
    assert knee_error < 10
    assert saved > 40


@pytest.mark.slow
def test_networks_are_taken_away(shown: dict[str, dict[str, str]]) -> None:
    before, after = json.loads(shown["thin = dp.load(result.knee.path, Net())"]["text/plain"])
    assert after < before / 2
    exported = shown["print(dp.export(run_dir, Net(), normalize=True))"]["printed"]
    assert float(exported.split()[-1]) < 1e-4


@pytest.mark.slow
def test_parts_work_by_themselves(shown: dict[str, dict[str, str]]) -> None:
    (refitted,) = [one["printed"] for name, one in shown.items() if name.startswith("genome =")]
    original, cut, solved = figures(refitted)
    assert original < solved < cut
    (searched,) = [one["printed"] for name, one in shown.items() if name.startswith("front =")]
    assert figures(searched)[-1] < 20


def test_it_is_kept_without_outputs_and_its_links_lead_somewhere() -> None:
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in CELLS)
    links = re.findall(r"\]\(([^)#]+)", "".join("".join(cell["source"]) for cell in CELLS))
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []
