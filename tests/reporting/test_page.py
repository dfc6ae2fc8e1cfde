"""The page and the plots as files: complete, self-contained, and harmless whatever names a run holds."""

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from click.testing import CliRunner
from PIL import Image

from deeppruning.cli.commands.report import report
from deeppruning.errors import RunError
from deeppruning.reporting import plots, write_plots, write_report, write_rivals_plot
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import embed, render
from deeppruning.reporting.plots import candidates_markup, draw, finetuning, png, svg
from deeppruning.runs import RunFolder
from deeppruning.system.commands import how_to_install
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
    words = [element.text for element in space.iter() if element.tag.endswith("text")]
    assert {"heavy", "knee", "light", "FLOPs", "Error in the search"} <= set(words)
    with Image.open(tmp_path / "run/plots/population.png") as image:
        assert image.size == (1280, 920)
    # A run in its search has no plot of fine-tuning, one without candidates has none at all.
    early = write_plots(make_run(tmp_path / "early", 1))
    assert [path.stem for path in early][::2] == ["population", "layers"]
    assert write_plots(make_run(tmp_path / "empty", 0)) == []


def test_the_same_data_gives_the_same_bytes_whatever_the_users_own_style(tmp_path):
    data = collect(make_run(tmp_path / "run"))
    data["curves"][0] |= {"roles": [], "name": "<b>&\x00$x^2$"}
    plain = svg(finetuning(data)), png(finetuning(data))
    with matplotlib.rc_context({"figure.dpi": 50, "font.size": 20, "svg.fonttype": "path"}):
        assert (svg(finetuning(data)), png(finetuning(data))) == plain
        assert matplotlib.rcParams["font.size"] == 20
    assert ">&lt;b&gt;&amp;?$x^2$</text>" in plain[0]


def test_without_matplotlib_there_is_a_page_without_plots_and_a_line_that_says_how_to_get_them(
    tmp_path, monkeypatch
):
    run = make_run(tmp_path / "run")
    write_comparison(run / "compare", ("l1",))
    monkeypatch.setattr(plots, "has_extra", lambda name: name != "plots")
    result = CliRunner().invoke(report, [str(run)])
    assert result.exit_code == 0 and str(run / "report.html") in result.output
    assert how_to_install("matplotlib") in result.output
    assert write_rivals_plot(run / "compare") is None and not list(run.rglob("plots"))
    assert "matplotlib" in candidates_markup(run)


def test_the_command_prints_the_path_and_refuses_what_is_no_run(tmp_path):
    path = make_run(tmp_path / "run", 1)
    result = CliRunner().invoke(report, [str(path)])
    assert (result.exit_code, result.output.strip()) == (0, str(path / "report.html"))
    refused = CliRunner().invoke(report, [str(tmp_path / "none")])
    assert isinstance(refused.exception, RunError)
    assert "Example:" in CliRunner().invoke(report, ["--help"]).output


@pytest.mark.parametrize("generations", [0, 1])
def test_unfinished_runs_have_a_page_too(tmp_path, generations):
    text = render(collect(make_run(tmp_path / "run", generations)))
    assert ("no candidate evaluated yet" in text) == (generations == 0)


def test_plots_show_the_numbers_of_the_run(tmp_path):
    run = make_run(tmp_path / "run")
    write_comparison(run / "compare", ("deeppruninges",))
    data = collect(run)
    drawn = draw(data)
    dots = drawn["population"].axes[0].collections[0].get_offsets()
    assert dots.tolist() == [[row["flops"], row["error"]] for row in data["candidates"]]
    curves = [line for line in drawn["finetuning"].axes[0].lines if line.get_linewidth() == 2.0]
    epochs = [[(row["epoch"], row["test_error"]) for row in curve["epochs"]] for curve in data["curves"]]
    assert [[tuple(point) for point in line.get_xydata()] for line in curves] == epochs
    widths = {row["id"]: row["widths"] for row in data["candidates"]}
    for axes, pick in zip(drawn["layers"].axes, data["solutions"], strict=True):
        cut = [
            width
            for width, layer in zip(widths[pick["id"]], data["layers"], strict=True)
            if not layer["fixed"]
        ]
        heights = [bar.get_height() for bar in axes.containers[1]]
        assert heights == cut
    points = data["rivals"]["methods"][0]["points"]
    assert drawn["rivals"].axes[0].lines[1].get_xydata().tolist() == sorted(
        [one["share"], one["after"]] for one in points
    )
    for figure in drawn.values():
        assert not any(axes.xaxis_inverted() or axes.yaxis_inverted() for axes in figure.axes)
