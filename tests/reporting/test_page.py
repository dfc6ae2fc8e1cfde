"""The page and the plots as files: complete, self-contained, and harmless whatever names a run holds."""

import base64
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner
from PIL import Image

from deeppruning.cli.commands.report import report
from deeppruning.errors import RunError
from deeppruning.reporting import write_plots, write_report
from deeppruning.reporting.data import collect
from deeppruning.reporting.drawing import Drawing
from deeppruning.reporting.page import embed, render
from deeppruning.reporting.plots import COLORS, draw
from deeppruning.runs import RunFolder
from report_runs import LAYERS, make_run, write_comparison

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'@@data@@\u2028"


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path):
    path = write_report(make_run(tmp_path / "run"))
    text = path.read_text()
    assert path == tmp_path / "run" / "report.html"
    assert len(text) < 200_000
    assert "@@" not in text
    assert re.findall(r"(?:src|href)\s*=\s*[\"'](?!#|data:,)[^\"']*", text) == []
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert "connect-src 'none'" in text


def test_the_policy_names_the_hashes_of_script_and_style(tmp_path):
    text = render(collect(make_run(tmp_path / "run")))
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in text


def test_hostile_names_stay_text(tmp_path):
    path = make_run(tmp_path / "run", model={"spec": HOSTILE}, data={"data": HOSTILE})
    with RunFolder.open(path) as run:
        run.history.set_fact("layers", {HOSTILE + name: genes for name, genes in LAYERS.items()})
    data = collect(path)
    text = render(data)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    body = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(body) == json.loads(json.dumps(data))
    assert not set("<>&") & set(embed({"name": HOSTILE}))


def test_plots_hold_what_the_run_holds(tmp_path):
    written = write_plots(make_run(tmp_path / "run"))
    names = ["population", "layers", "finetuning"]
    assert [path.name for path in written] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
    space = ElementTree.parse(tmp_path / "run/plots/population.svg").getroot()
    tags = [element.tag.rpartition("}")[2] for element in space]
    assert tags.count("circle") == 15
    words = [element.text for element in space if element.tag.endswith("text")]
    assert {"heavy", "knee", "light", "FLOPs", "Error in the search"} <= set(words)
    with Image.open(tmp_path / "run/plots/population.png") as image:
        assert image.size == (1280, 920)


def test_a_run_in_its_search_has_no_plot_of_fine_tuning(tmp_path):
    assert [path.stem for path in write_plots(make_run(tmp_path / "run", 1))][::2] == ["population", "layers"]
    assert write_plots(make_run(tmp_path / "empty", 0)) == []


def test_drawings_escape_text_and_paint_what_svg_shows():
    drawing = Drawing(20, 10)
    drawing.text(0, 7, "<b>&\x00", size=4)
    drawing.rectangle(10, 0, 10, 10, "#ff0000")
    drawing.line([(0, 1), (10, 1)], "#0000ff", 2, dash=5)
    assert ">&lt;b&gt;&amp;?</text>" in drawing.svg()
    image = Image.open(io.BytesIO(drawing.png()))
    assert (image.size, image.getpixel((35, 10))) == ((40, 20), (255, 0, 0))
    assert [image.getpixel((x, 1)) for x in (4, 16)] == [(0, 0, 255), (255, 255, 255)]


def test_the_command_prints_the_path_and_refuses_what_is_no_run(tmp_path):
    path = make_run(tmp_path / "run", 1)
    result = CliRunner().invoke(report, [str(path)])
    assert (result.exit_code, result.output.strip()) == (0, str(path / "report.html"))
    refused = CliRunner().invoke(report, [str(tmp_path / "none")])
    assert isinstance(refused.exception, RunError)
    assert "Example:" in CliRunner().invoke(report, ["--help"]).output


@pytest.mark.parametrize("generations", [0, 1])
def test_unfinished_runs_have_a_page_too(tmp_path, generations):
    text = write_report(make_run(tmp_path / "run", generations)).read_text()
    assert ("no candidate evaluated yet" in text) == (generations == 0)


def test_axes_are_not_mirrored(tmp_path):
    """More of anything lies further to the right or higher up; the ticks beside it say the same numbers."""
    run = make_run(tmp_path / "run")
    write_comparison(run / "compare", ("deeppruninges",))
    data = collect(run)
    drawn = draw(data, run)

    dots = [part for part in drawn["population"].parts if getattr(part, "radius", 0) == 4]
    rows = sorted(data["candidates"], key=lambda row: row["generation"])
    expected = [(row["flops"], row["error"]) for row in rows]
    assert scaled([dot.points[0] for dot in dots], downward=True) == pytest.approx(scaled(expected))

    lines = [part for part in drawn["finetuning"].parts if getattr(part, "width", 0) == 2.0]
    epochs = [(row["epoch"], row["test_error"]) for curve in data["curves"] for row in curve["epochs"]]
    shown = [point for line in lines for point in line.points]
    assert scaled(shown, downward=True) == pytest.approx(scaled(epochs))

    bars = [part for part in drawn["layers"].parts if getattr(part, "fill", None) == COLORS["knee"]]
    tops = [min(y for _, y in bar.points) for bar in bars]
    floors = {max(y for _, y in bar.points) for bar in bars}
    knee = next(pick for pick in data["solutions"] if pick["role"] == "knee")
    widths = next(row["widths"] for row in data["candidates"] if row["id"] == knee["id"])
    cut = [width for width, layer in zip(widths, data["layers"], strict=True) if not layer["fixed"]]
    (floor,) = floors
    heights = [floor - top for top in tops]
    assert [height / max(heights) for height in heights] == pytest.approx([one / max(cut) for one in cut])

    dots = [part.points[0] for part in drawn["rivals"].parts if getattr(part, "radius", 0) == 4.0]
    points = [point for point in data["rivals"]["methods"][0]["points"] if point]
    expected = sorted((one["share"], one["after"]) for one in points)
    assert scaled(dots, downward=True) == pytest.approx(scaled(expected))

    for name in ("population", "finetuning", "rivals"):
        ticks = [word for word in drawn[name].parts if getattr(word, "size", 0) == 11 and leading(word.text)]
        left = sorted((-word.y, leading(word.text)[0]) for word in ticks if word.anchor == "end")
        below = sorted((word.x, leading(word.text)[0]) for word in ticks if word.anchor == "middle")
        for values in ([value for _, value in left], [value for _, value in below]):
            assert len(values) > 1
            assert values == sorted(values)


def leading(text):
    """The number of a tick, if it is one: 40 of "40 %" and of "40 k"."""
    found = re.fullmatch(r"([\d.]+)( [%kMG])?", text)
    return [float(found[1])] if found else []


def scaled(points, *, downward=False):
    """Places on 0..1, from left to right and from bottom to top; pixels are counted downward."""
    across, up = (
        [(value - min(values)) / (max(values) - min(values)) for value in values]
        for values in zip(*points, strict=True)
    )
    return [*across, *(1 - value if downward else value for value in up)]
