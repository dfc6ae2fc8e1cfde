"""The controls of the page at the width of a phone and of a desk: table, limits, scale, taking a network."""

import csv
import io
import itertools
import json
import os
from pathlib import Path

import pytest

from browser_pages import HOSTILE, save_page, slide, text
from deeppruning.runs import RunFolder
from deeppruning.system.commands import command_for_page
from report_runs import make_run, write_comparison

# test_browser.py looks at the narrow page.
WIDTHS = pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.slow), 1280])
BENCH = {
    "networks": {
        role: {"flops": 9, "latency_ms": {"PyTorch, batch 1": {"median": median, "spread": 0.1}}}
        for role, median in {"original": 8.0, "heavy": 8.5, "knee": 4.0, "light": 2.0}.items()
    },
    "warnings": ["heavy has 40 % fewer FLOPs, but is 6 % slower (PyTorch, batch 1)"],
    "advice": "try a larger batch",
    "noisy": True,
}
TARGET = {"asked": "flops=40%", "id": 13, "met": True, "note": "met by candidate 13: <b>flops</b> 38.0 %"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a run with everything there is: latencies, a comparison, a hostile reason and a target."""
    path = make_run(tmp_path_factory.mktemp("controls") / "run")
    write_comparison(path / "compare", ("l1", "deeppruninges"))
    with RunFolder.open(path) as run:
        run.history.set_fact("bench", BENCH)
        run.history.set_fact("test_images", 360)
        light = run.history.get_fact("solution/light")
        run.history.set_fact("solution/target", {**light, "id": 13, "test_error": 0.15})
        run.history.set_fact("target", TARGET)
        run.history.set_fact("versions", {"python": "3.11.7", "torch": "2.13.0", "processor": "a fast one"})
    return save_page(path).as_uri()


@pytest.fixture
def at(open_page, window, address):
    """The page at a width; whatever is done to it, it keeps to its width and complains of nothing."""

    def open_(width, address=address):
        return open_page(address, width)

    yield open_
    assert window.evaluate("document.documentElement.scrollWidth") == window.viewport_size["width"]
    assert window.problems == []


def column(page, number):
    """The cells of a column of the table, as they are shown."""
    return page.locator(f"#table tbody tr > :nth-child({number})").all_inner_texts()


@WIDTHS
def test_the_table_is_sorted_by_its_heads(at, width):
    page = at(width)
    assert column(page, 1) == [str(number) for number in range(15)]
    head = page.locator("#table th", has=page.get_by_role("button", name="Error in the search"))
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the focus stays where it was
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, 1)[:3] == ["14", "13", "12"] and column(page, 4)[0] == "75.0 %"
    page.get_by_role("button", name="Test error").click()
    assert column(page, 5)[:4] == ["7.00 %", "10.00 %", "15.00 %", "20.00 %"]
    assert set(column(page, 5)[4:]) == {"–"}  # unknown comes last
    page.get_by_role("button", name="Test error").click()
    assert column(page, 5)[:5] == ["20.00 %", "15.00 %", "10.00 %", "7.00 %", "–"]
    page.locator('[data-row="9"] button').click()
    assert text(page, "#details h3") == "Candidate 9"


@WIDTHS
def test_the_table_is_filtered_and_saved(at, width):
    page = at(width)
    page.fill("#table-filter", "knee")
    assert (column(page, 1), text(page, "#table-count")) == (["12"], "1 of 15 candidates.")
    page.fill("#table-filter", "nobody")
    assert column(page, 1) == [] and page.locator("#table-csv").is_disabled()
    page.fill("#table-filter", "")
    slide(page, "#max-error", 500)
    assert text(page, "#table-count") == "8 of 15 candidates."
    with page.expect_download() as waiting:
        page.click("#table-csv")
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert waiting.value.suggested_filename == "candidates.csv"
    assert [row["Candidate"] for row in rows] == [str(number) for number in range(8)]
    assert (rows[0]["Role"], rows[0]["FLOPs"], float(rows[0]["Test error"])) == ("heavy", "900000", 0.07)


def test_what_a_spreadsheet_would_compute_is_saved_as_text(at, tmp_path):
    reasons = ["=1+1", "@x", "-2", '+"a",b']
    written = save_page(make_run(tmp_path / "run"))
    parts = written.read_text().split('"status":"ok"')
    states = [json.dumps(reasons[place % 4]) for place in range(15)]
    joined = "".join(f'{part}"status":{state}' for part, state in zip(parts[:-1], states, strict=True))
    written.write_text(joined + parts[-1])
    page = at(1280, written.as_uri())
    with page.expect_download() as waiting:
        page.click("#table-csv")
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text())))
    assert [row["State"] for row in rows[:4]] == ["'" + reason for reason in reasons]


@WIDTHS
def test_limits_hold_for_test_errors_and_latencies(at, width):
    page = at(width)
    slide(page, "#max-test-error", 500)  # of 7 to 20 %: 13.5 %
    assert text(page, "#max-test-error-out") == "13.50 %"
    assert column(page, 1) == ["0", "12"]
    assert page.locator(".point.dim").count() == 13
    slide(page, "#max-test-error", 1000)
    slide(page, "#max-latency", 400)  # of 2 to 8.5 ms: 4.6
    assert text(page, "#max-latency-out") == "4.6 ms"
    assert column(page, 1) == ["12", "14"]
    assert "2 of 15 qualify" in text(page, "#population")


def test_what_is_not_known_is_no_limit(at, tmp_path):
    page = at(1280, save_page(make_run(tmp_path / "run", 2)).as_uri())
    assert page.locator("#max-flops").is_visible()
    assert not page.locator("#max-test-error").is_visible() and not page.locator("#max-latency").is_visible()


@WIDTHS
def test_a_network_is_taken_from_its_card(at, width):
    page = at(width)
    take, lines = page.locator('[data-take="knee"]'), page.locator("#taking")
    assert not lines.is_visible() and take.inner_text().startswith("Use this network")
    # On the page, not in the window, which scrolls to the lines in its own time.
    boxes = """parts => parts.map(part => {
        const box = part.getBoundingClientRect();
        return [box.x, box.y + scrollY, box.width, box.height].map(Math.round);
    })"""
    before = page.locator(".card").evaluate_all(boxes)
    take.click()
    load, export = lines.locator("code").all_inner_texts()
    assert load.startswith("import deeppruning as dp; model = dp.load(") and "knee.safetensors" in load
    assert export.endswith("--solution knee --format onnx")
    assert lines.get_by_role("button").count() == 2
    assert page.locator("[data-take]").count() == 4  # the original is there already
    after = page.locator(".card").evaluate_all(boxes)
    assert after == before and len(after) == 5  # no card is stretched or moved
    assert lines.evaluate_all(boxes)[0][1] >= max(y + height for _, y, _, height in after)
    assert take.get_attribute("aria-expanded") == "true"
    take.click()
    assert not lines.is_visible()
    assert "36 of 360 images" in text(page, '[data-card="knee"]')


@WIDTHS
def test_a_logarithmic_error_tells_small_ones_apart(at, width):
    page = at(width)
    ends = "[data-curve$=test_error]"
    heights = """lines => lines.map(line => { const box = line.getBBox(); return box.y + box.height; })"""
    linear = page.locator(ends).evaluate_all(heights)
    page.get_by_role("button", name="Logarithmic").click()
    assert page.get_by_role("button", name="Logarithmic").get_attribute("aria-pressed") == "true"
    logarithmic = page.locator(ends).evaluate_all(heights)
    # 7 and 10 % lie further apart than before, 10 and 20 % lie as far apart as any doubling.
    assert logarithmic[0] - logarithmic[1] > linear[0] - linear[1]
    page.get_by_role("button", name="Linear").click()
    assert page.locator(ends).evaluate_all(heights) == linear


@WIDTHS
def test_candidates_are_told_apart_on_a_logarithmic_scale(at, width):
    page = at(width)
    heights = (
        "ids => ids.map(id => Number(document.querySelector(`#space [data-id='${id}']`).getAttribute('cy')))"
    )
    five, ten, twenty = page.evaluate(heights, [0, 1, 3])  # per cent
    assert twenty - ten == pytest.approx(2 * (ten - five), abs=1e-6)
    page.locator("#scale").select_option("log")
    five, ten, twenty = page.evaluate(heights, [0, 1, 3])
    assert twenty - ten == pytest.approx(ten - five, abs=1e-6)  # a doubling is a doubling
    ticks = page.locator("#space svg text").all_text_contents()
    assert {"5 %", "10 %", "20 %"} <= {*ticks}


@WIDTHS
def test_commands_in_a_text_are_set_apart_without_marks(at, tmp_path, width):
    path = make_run(tmp_path / "run")
    with RunFolder.open(path) as run:
        run.history.set_fact("bench", {**BENCH, "advice": "try `--objective latency`, or a larger batch"})
        light = run.history.get_fact("solution/light")
        run.history.set_fact("solution/light", {**light, "failure": "see `<b>finetune</b>`"})
    page = at(width, save_page(path).as_uri())
    assert "`" not in text(page, "main")
    assert page.locator("#bench-more code").first.inner_text() == "--objective latency"
    assert page.locator(".failure code").inner_text() == "<b>finetune</b>"


def test_cards_say_how_large_a_file_is(at, tmp_path):
    path = make_run(tmp_path / "run")
    (path / "knee.safetensors").write_bytes(bytes(12_340))
    page = at(1280, save_page(path).as_uri())
    assert "File\n12.3 kB" in text(page, '[data-card="knee"]')
    assert "File" not in text(page, '[data-card="light"]')


@WIDTHS
def test_speed_ups_and_the_warning_are_shown(at, width):
    page = at(width)
    rows = [row.split() for row in page.locator("#bench tbody tr").all_inner_texts()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("original", "–"),
        ("heavy", "0.94×"),
        ("knee", "2.00×"),
        ("light", "4.00×"),
    ]
    assert text(page, "#bench-more .warning").startswith(BENCH["warnings"][0])
    more = text(page, "#bench-more")
    assert "try a larger batch" in more and "machine was busy" in more


@WIDTHS
def test_a_target_has_its_card_and_its_mark(at, width):
    page = at(width)
    assert text(page, '[data-card="target"] h3').split() == ["Target", "recommended"]
    assert text(page, "#verdict").startswith("Take target: ")
    assert text(page, "#asked") == f"Target flops=40%: {TARGET['note']}.".replace(" %", "\u00a0%")
    assert text(page, '[data-card="target"] .note') == "Meets flops=40%"
    assert page.locator('[data-pick="target"]').count() == 1


@WIDTHS
def test_headings_go_down_one_step_at_a_time(at, width):
    levels = at(width).locator("h1, h2, h3").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


@WIDTHS
def test_no_label_lies_on_another(at, width):
    page = at(width)
    overlapping = """charts => charts.flatMap(chart => {
      const boxes = [...chart.querySelectorAll('text')]
        .filter(one => getComputedStyle(one).display !== 'none')
        .map(one => [one.textContent, one.getBoundingClientRect()]);
      return boxes.flatMap(([name, a], at) => boxes.slice(at + 1)
        .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
          && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2).map(([other]) => [name, other]));
    })"""
    for scale in ("Linear", "Logarithmic"):
        page.get_by_role("button", name=scale).click()
        assert page.locator(".chart svg").evaluate_all(overlapping) == []


def test_versions_and_no_folders_are_shown(at, tmp_path):
    assert "a fast one" in text(at(1280), "#config")
    run = make_run(tmp_path / "run", model={"spec": "/home/me/nets.py:tiny"}, data={"data": "/data/photos"})
    page = at(1280, save_page(run).as_uri())
    assert page.title() == "nets.py:tiny on photos: finished"
    assert text(page, "#run") == "Run run · 15 of 15 candidates evaluated"


@WIDTHS
def test_a_stopped_run_says_how_to_go_on(at, tmp_path, width):
    path = save_page(make_run(tmp_path / "a run", 2))
    page = at(width, path.as_uri())
    assert text(page, "#resume code") == command_for_page("resume", path.parent.name)
    assert not page.locator("#progress").is_visible()


@WIDTHS
def test_a_run_at_work_says_how_long_it_will_take(at, tmp_path, width):
    path = make_run(tmp_path / "run", 2, run={"workers": 2})
    with RunFolder.open(path):
        page = at(width, save_page(path).as_uri())
    # 4 candidates of 1.5 s are left to two workers.
    said = "11 of 15 candidates, about 3 s left"
    assert text(page, "#progress-text").startswith(said)
    assert page.locator("#progress-bar").evaluate("bar => bar.value") == pytest.approx(11 / 15)
    assert not page.locator("#resume").is_visible()


@WIDTHS
def test_the_comparison_says_how_it_was_fine_tuned(at, tmp_path, width):
    path = make_run(tmp_path / "run")
    tuning = {"epochs": 3, "lr": 0.01, "schedule": "cosine", "distill": 0.9}
    RunFolder.create(path / "compare", {"compare": {"finetune": tuning, "images": 4000}}).close()
    write_comparison(path / "compare", ("l1", "deeppruninges"))
    page = at(width, save_page(path).as_uri())
    said = "(3 epochs, learning rate 0.01 (cosine), distillation 0.9, 4,000 training images)"
    assert said in text(page, "#rivals-lead")


def axe() -> Path:
    """The file axe.min.js of axe-core: named in AXE_CORE, or installed beside the tests by npm."""
    beside = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
    found = Path(os.environ.get("AXE_CORE") or beside)
    if not found.is_file():
        pytest.skip("no axe-core: run `npm install axe-core` in tests/, or name its axe.min.js in AXE_CORE")
    return found


@WIDTHS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, address, width, scheme):
    script = axe()
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page.goto(address)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.add_script_tag(path=script)
    found = page.evaluate("axe.run()")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert len(found["passes"]) > 30
    page.close()


def test_nothing_hostile_in_the_table(at):
    page = at(1280)
    page.fill("#table-filter", HOSTILE)
    assert text(page, "#table-count") == "0 of 15 candidates."
    assert page.locator("img").count() == 0
