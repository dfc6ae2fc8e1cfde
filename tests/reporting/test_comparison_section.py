"""The comparison with other methods in the report: what is read, what is refused, and its plot."""

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from PIL import Image

from deeppruning.comparison import METHODS
from deeppruning.comparison import run as writer
from deeppruning.reporting import write_plots, write_rivals_plot
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.plots import KIND_COLORS, rivals, svg
from deeppruning.reporting.plots import OURS as OURS_COLOR
from deeppruning.reporting.sections.rivals import OURS, RESULTS, read_rivals
from report_runs import make_run, write_comparison

HOSTILE = "</script><b>&"
NAMES = ("l1", "deeppruninges", "auto-balanced", "es-plus")


def test_methods_are_read_as_means_the_best_at_the_knee_first(tmp_path):
    run = make_run(tmp_path / "run")
    assert collect(run)["rivals"] is None
    write_comparison(run / "compare", NAMES)
    found = collect(run)["rivals"]
    assert [method["name"] for method in found["methods"]] == list(NAMES)
    assert [method["ours"] for method in found["methods"]] == [False, True, False, False]
    assert (found["methods"][1]["label"], found["matched"], found["seeds"]) == ("DeepPruningES", True, [2, 2])
    assert (found["targets"][1], found["middle"]) == ({"name": "knee", "share": 0.42}, 1)
    knee = found["methods"][2]["points"][1]
    assert knee["after"] == pytest.approx(0.23)
    assert knee["spread"] == pytest.approx(0.02 / 2**0.5)
    assert (knee["share"], knee["select_seconds"], knee["finetune_seconds"]) == (0.418, 2.0, 100.0)
    (search,) = found["searches"]
    assert (search["label"], search["evaluations"], search["hypervolume"]) == ("es-plus", 15, 0.55)


def test_without_a_matched_run_the_same_search_stands_for_ours(tmp_path):
    found = read_rivals(write_comparison(tmp_path, ("l1", "es-plus"), seeds=1))
    assert [method["ours"] for method in found["methods"]] == [False, True]
    assert (found["matched"], found["seeds"], found["methods"][0]["points"][0]["spread"]) == (
        False,
        [1, 1],
        None,
    )


def test_reader_and_writer_agree_on_names():
    assert (RESULTS, OURS) == (writer.RESULTS, writer.OURS)
    assert {method.kind for method in METHODS.values()} <= set(KIND_COLORS)


DAMAGES = {
    "no error": lambda table: table["means"][0].pop("error_after"),
    "not a number": lambda table: table["means"][0].update(error_after=float("nan")),
    "text for a number": lambda table: table["means"][0].update(flops="many"),
    "beyond floats": lambda table: table["means"][0].update(flops=10**400),
    "number for a name": lambda table: table["means"][0].update(method=3),
    "no FLOPs": lambda table: table["original"].update(flops=0),
    "no methods": lambda table: table["means"].clear(),
    "searches of text": lambda table: table.update(searches=["x"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_table_is_left_out(tmp_path, damage):
    file = write_comparison(tmp_path, NAMES) / RESULTS
    table = json.loads(file.read_text())
    damage(table)
    file.write_text(json.dumps(table))
    assert read_rivals(tmp_path) is None
    assert write_rivals_plot(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_half_written_file_does_not_break_the_page(tmp_path, content):
    run = make_run(tmp_path / "run", 1)
    (write_comparison(run / "compare", NAMES) / RESULTS).write_bytes(content)
    assert '"rivals":null' in render(collect(run))


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_plot_has_a_line_for_each_method(tmp_path, seeds):
    figure = rivals({"rivals": read_rivals(write_comparison(tmp_path, NAMES, seeds))})
    original, *curves = figure.axes[0].lines
    assert original.get_ydata()[0] == 0.08
    assert [len(line.get_xdata()) for line in curves] == [3] * len(NAMES)
    assert {line.get_color() for line in curves} < {OURS_COLOR, *KIND_COLORS.values()}
    assert (curves[-1].get_color(), curves[-1].get_linewidth()) == (OURS_COLOR, 3.5)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [
        "es-plus",
        "auto-balanced",
        "DeepPruningES",
        "l1",
        "original",
    ]  # as their lines end, top to bottom


def test_the_plot_is_written_for_a_run_and_for_a_comparison_alone(tmp_path):
    run = make_run(tmp_path / "run", 0)
    write_comparison(run / "compare", (HOSTILE, *NAMES))
    assert write_plots(run) == [run / "plots" / "rivals.svg", run / "plots" / "rivals.png"]
    assert write_rivals_plot(run / "compare") == run / "compare" / "plots" / "rivals.svg"
    with Image.open(run / "compare" / "plots" / "rivals.png") as image:
        assert image.size == (1440, 1080)
    root = ElementTree.parse(run / "plots" / "rivals.svg").getroot()
    assert HOSTILE in [element.text for element in root.iter()]
    page = render(collect(run))
    assert (page.count("</script>"), page.count("<b>")) == (2, 0)


def test_every_method_there_is_has_a_place_for_its_name(tmp_path):
    figure = rivals({"rivals": read_rivals(write_comparison(tmp_path, (OURS, *METHODS)))})
    svg(figure)
    boxes = [text.get_window_extent() for text in figure.legends[0].get_texts()]
    assert len(boxes) == len(METHODS) + 2
    assert all(figure.bbox.y0 <= box.y0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(upper.y0 >= lower.y1 - 4 for upper, lower in pairwise(boxes))
