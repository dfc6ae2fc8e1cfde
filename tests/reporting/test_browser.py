"""The page in a real browser: from the disk and live, by mouse and by keyboard, with hostile names."""

import threading

import pytest

from browser_pages import HOSTILE, save_page, slide, text
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.section import table
from deeppruning.reporting.server import ReportServer
from deeppruning.runs import RunFolder
from report_runs import (
    GENERATIONS,
    LAYERS,
    ORIGINAL,
    add_generation,
    add_solutions,
    config,
    make_run,
    write_comparison,
)

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return save_page(make_run(tmp_path_factory.mktemp("finished") / "run")).as_uri()


@pytest.fixture
def page(open_page, address):
    """The page of a finished run, opened from the disk."""
    opened = open_page(address)
    yield opened
    assert opened.problems == []
    assert opened.requests == [address]


def test_a_section_that_is_a_table_is_shown_as_text(open_page, tmp_path):
    run = make_run(tmp_path / "run")
    assert collect(run)["tables"] == []
    shown = table(HOSTILE, ["candidate", "seconds"], [[3, 1.5], [HOSTILE, 0]], lead="The longest.")
    (tmp_path / "page.html").write_text(render({**collect(run), **shown}))
    opened = open_page((tmp_path / "page.html").as_uri())
    assert text(opened, "#tables h2") == HOSTILE
    assert opened.locator("#tables tbody tr").nth(0).inner_text().split() == ["3", "1.5"]
    assert opened.locator("#tables tbody th").nth(1).inner_text() == HOSTILE
    assert opened.problems == []


def test_cards_and_verdict_are_shown(page):
    verdict = text(page, "#verdict")
    assert verdict.startswith("Take heavy: ") and "10.0\u00a0%" in verdict and "1.00 points" in verdict
    cards = page.locator("[data-card]")
    assert [cards.nth(place).get_attribute("data-card") for place in range(4)] == [
        "original",
        "heavy",
        "knee",
        "light",
    ]
    assert "10.00 %" in cards.nth(2).inner_text()
    assert "58.0 %" in cards.nth(2).inner_text()
    assert page.locator(".point").count() == 15
    assert text(page, "#details h3") == "Candidate 0"  # the one that is recommended
    assert page.locator(".card .badge").inner_text() == "recommended"
    assert page.locator("[data-curve]").count() == 6
    assert not page.locator("#rivals-section").is_visible()


def test_the_slider_moves_the_population(page):
    slide(page, "#generation", 2)
    assert text(page, "#population").startswith("Generation 2: 4 new candidates and their 3 parents")
    assert page.locator(".point").count() == 11
    assert page.locator(".point.faded").count() == 4  # seven of generation 1, of which three are parents
    assert page.locator(".parent").count() == 3
    slide(page, "#generation", 1)
    assert (page.locator(".point").count(), page.locator(".point.faded").count()) == (7, 0)
    page.click("#all")
    assert page.locator(".point").count() == 15


@pytest.mark.slow
def test_play_goes_through_the_generations(page):
    page.click("#play")
    assert text(page, "#generation-out") == "1 of 3"
    expect(page.locator("#generation-out")).to_have_text("3 of 3")
    expect(page.locator("#play")).to_have_text("Play")


def test_a_click_shows_a_candidate_its_layers_and_its_command(page):
    page.locator('.point[data-id="5"]').click()
    assert text(page, "#details h3") == "Candidate 5"
    assert "--candidate 5" in text(page, "#details code")
    # Candidate 5 has genome 57, 111001: of the stem three filters, of the head one and its fixed one.
    assert text(page, '[data-layer="stem"] .count') == "3 / 4"
    assert text(page, '[data-layer="head"] .count') == "2 / 3"
    page.locator('[data-network="heavy"]').click()
    assert text(page, '[data-layer="stem"] .count') == "4 / 4"
    page.select_option("#candidate", "9")
    assert text(page, "#details h3") == "Candidate 9"


def test_filters_dim_what_does_not_qualify(page):
    slide(page, "#max-error", 500)
    assert page.locator(".point.dim").count() == 7
    assert text(page, "#population").endswith("8 of 15 qualify.")
    slide(page, "#max-flops", 500)
    assert page.locator(".point.dim").count() == 14
    slide(page, "#max-error", 1000)
    assert (text(page, "#max-error-out"), page.locator(".point.dim").count()) == ("any", 7)


def test_the_keyboard_is_enough(page):
    page.select_option("#candidate", "12")
    page.locator("#scale").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('data-id')") == "12"
    page.keyboard.press("ArrowRight")  # the next in FLOPs
    assert text(page, "#details h3") == "Candidate 11"
    assert text(page, "#tip").startswith("Candidate 11,")  # the tooltip follows
    page.keyboard.press("End")
    assert text(page, "#details h3") == "Candidate 0"
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert text(page, "#tip").startswith("Candidate 0,")
    page.locator("#generation").focus()
    assert not page.locator("#tip").is_visible()
    page.keyboard.press("ArrowLeft")
    assert text(page, "#generation-out") == "2 of 3"


@pytest.mark.parametrize("width", [390, 1280, pytest.param(1920, marks=pytest.mark.slow)])
def test_nothing_is_wider_than_the_screen(open_page, tmp_path, width):
    path = save_page(make_run(tmp_path / "run", model={"spec": "x" * 300}))
    page = open_page(path.as_uri(), width=width, scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    heights = page.locator(".card dd").evaluate_all("cells => cells.map((cell) => cell.offsetHeight)")
    assert max(heights) < 60  # a figure is not broken letter by letter
    assert page.problems == []


def test_hostile_names_are_shown_as_they_are(open_page, tmp_path):
    path = make_run(
        tmp_path / "run<img src=x onerror=alert(1)>", model={"spec": HOSTILE}, data={"data": HOSTILE}
    )
    with RunFolder.open(path) as run:
        run.history.set_fact("layers", {HOSTILE + name: genes for name, genes in LAYERS.items()})
        run.history.set_fact("versions", {HOSTILE: HOSTILE})
        run.history.set_fact("bench", {"networks": {HOSTILE: {"latency_ms": {HOSTILE: {"median": 1.5}}}}})
    page = open_page(save_page(path).as_uri())
    assert text(page, "#title") == f"{HOSTILE} on {HOSTILE}"
    assert page.locator("img").count() == 0
    assert page.locator(".layer").count() == 3
    assert "1.5" in text(page, "#bench")
    assert page.problems == []
    assert len(page.requests) == 1


def test_a_method_is_brought_out_by_mouse_and_by_keyboard(open_page, tmp_path):
    run = make_run(tmp_path / "run")
    write_comparison(run / "compare", ("l1", "deeppruninges", HOSTILE))
    page = open_page(save_page(run).as_uri(), width=390)
    assert text(page, "#rivals-lead").startswith("2 other methods ")
    lines, rows = page.locator(".rival-line"), page.locator(".rival-row")
    assert (lines.count(), rows.count(), page.locator(".rival-line.ours").count()) == (3, 3, 1)
    assert text(page, ".rival-row.ours td >> nth=2") == "90.0 → 22.00 ± 1.41"
    assert page.locator(".rival-line.on").count() == 0
    rows.nth(0).click()
    page.mouse.move(0, 0)
    assert page.locator(".method").nth(0).get_attribute("aria-pressed") == "true"
    assert page.locator(".rival-line.on").get_attribute("data-rival") == "l1"
    page.locator(".method").nth(1).focus()
    page.keyboard.press("Tab")
    assert page.locator(".rival-line.on").get_attribute("data-rival") == HOSTILE
    page.keyboard.press("Enter")
    assert page.locator(".method[aria-pressed=true]").inner_text() == HOSTILE
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert (page.locator("img").count(), page.problems) == (0, [])


def test_an_empty_run_says_so(open_page, tmp_path):
    page = open_page(save_page(make_run(tmp_path / "run", 0)).as_uri())
    assert text(page, "#verdict").startswith("No candidate has been evaluated yet")
    assert not page.locator("#choose").is_visible()
    assert page.problems == []


def test_the_live_page_follows_a_run_and_keeps_the_choice(open_page, tmp_path):
    with RunFolder.create(tmp_path / "run", config()) as run, ReportServer(run.path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            page = open_page(server.address)
            assert text(page, "#status") == "running: no candidate evaluated yet"
            run.history.set_fact("original", ORIGINAL)
            run.history.set_fact("layers", LAYERS)
            add_generation(run, 1)
            page.wait_for_selector('.point[data-id="3"]')
            page.select_option("#candidate", "3")
            slide(page, "#max-error", 600)
            for generation in range(2, GENERATIONS + 1):
                add_generation(run, generation)
            add_solutions(run)
            expect(page.locator("#status")).to_have_text("finished", timeout=30_000)
            assert page.locator(".point").count() == 15
            assert text(page, "#details h3") == "Candidate 3"
            assert text(page, "#max-error-out") == "23.0 %"
            assert page.problems == []
            assert {url.removeprefix(server.address) for url in page.requests} == {"", "data.json"}
        finally:
            server.shutdown()
            thread.join()
