"""The page of a guided run: its archive, where candidates come from, and nothing of it for other runs."""

import shutil
import sqlite3

import pytest

from deeppruning.errors import RunError
from deeppruning.reporting import write_report
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.plots import draw, population
from deeppruning.runs import RunFolder
from guided_runs import GENERATIONS, RANGE, collect_guided, make_guided_run
from report_runs import make_run

HOSTILE = '</script><img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_guided_run(tmp_path_factory.mktemp("guided") / "run")


@pytest.fixture(scope="module")
def data(made):
    return collect_guided(made[0])


class TestData:
    def test_the_archive_grows_to_what_the_strategy_holds(self, made, data):
        _, strategy = made
        fronts = data["archive"]["fronts"]
        assert [row["generation"] for row in fronts] == list(range(1, GENERATIONS + 1))
        assert fronts[-1]["ids"] == tuple(one.id for one in strategy.archive)
        assert data["archive"]["bins"] == RANGE["bins"]
        by_id = {row["id"]: row for row in data["candidates"]}
        for row in fronts:
            assert all(by_id[id_]["generation"] <= row["generation"] for id_ in row["ids"])
            assert all(by_id[id_]["status"] == "ok" for id_ in row["ids"])

    def test_candidates_know_their_origin_and_score(self, data):
        first, *others = data["candidates"]
        assert (first["operator"], first["parents"], first["score"]) == ("original", [], 0.0)
        assert 0 not in data["archive"]["entered"]
        bred = [row for row in others if row["parents"]]
        assert bred and all(max(row["parents"]) < row["id"] for row in bred)
        assert any(len(row["parents"]) == 2 for row in bred if row["operator"] == "cross")

    def test_the_table_of_origins_counts_every_candidate_but_the_original(self, data):
        (shown,) = data["tables"]
        assert shown["title"] == "Where candidates come from"
        assert sum(int(row[1]) for row in shown["rows"]) == len(data["candidates"]) - 1
        assert sum(int(row[2]) for row in shown["rows"]) == len(data["archive"]["entered"])
        assert sum(int(row[4]) for row in shown["rows"]) == len(data["archive"]["fronts"][-1]["ids"])
        for _, tried, entered, share, _ in shown["rows"]:
            assert share == f"{100 * int(entered) / int(tried):.0f} %"

    def test_the_original_is_never_shown_as_a_pick(self, made, tmp_path):
        path = shutil.copytree(made[0], tmp_path / "run")
        with RunFolder.open(path) as run:
            run.history.record_picks(GENERATIONS, {"heavy": 0})
        shown = collect_guided(path)
        assert "heavy" not in shown["picks"][-1]
        assert [one["role"] for one in shown["solutions"]] == ["knee", "light"]

    def test_a_run_of_the_paper_has_no_archive(self, tmp_path):
        data = collect(make_run(tmp_path / "run"))
        assert (data["archive"], data["tables"]) == (None, [])
        assert data["picks"][-1]["heavy"] == 0
        assert {(row["operator"], tuple(row["parents"]), row["score"]) for row in data["candidates"]} == {
            ("", (), None)
        }

    def test_before_the_first_candidate_there_is_an_empty_archive(self, tmp_path):
        data = collect_guided(make_guided_run(tmp_path / "run", 0)[0])
        assert data["archive"] == {"bins": RANGE["bins"], "fronts": [], "entered": [], "sources": []}
        assert (data["tables"], draw(data)) == ([], {})
        assert "No candidate has been evaluated yet" in render(data)

    def test_damaged_parents_are_refused(self, made, tmp_path):
        path = shutil.copytree(made[0], tmp_path / "run")
        raw = sqlite3.connect(path / "history.sqlite")
        raw.execute("UPDATE candidates SET parents = '3;4' WHERE id = 20")
        raw.commit()
        raw.close()
        with pytest.raises(RunError, match="the parents of candidate 20 must be numbers joined by commas"):
            write_report(path)


def test_the_plot_for_papers_joins_the_front(made, data):
    _, strategy = made
    axes = population(data).axes[0]
    (front,) = [line for line in axes.lines if line.get_linewidth() == 1.2 and len(line.get_xdata()) > 1]
    held = sorted(
        (row["flops"], row["error"])
        for row in data["candidates"]
        if row["id"] in data["archive"]["fronts"][-1]["ids"]
    )
    assert len(held) == len(strategy.archive) and sorted(map(tuple, front.get_xydata())) == held
    assert axes.get_legend() is not None
    assert population({**data, "archive": None}).axes[0].get_legend() is None


def test_hostile_names_of_operators_stay_text(made, tmp_path):
    path = shutil.copytree(made[0], tmp_path / "run")
    raw = sqlite3.connect(path / "history.sqlite")
    raw.execute("UPDATE candidates SET operator = ? WHERE id > 0", (HOSTILE,))
    raw.commit()
    raw.close()
    page = render(collect_guided(path))
    assert page.count("</script>") == 2
    assert "<img" not in page


class TestBrowser:
    @pytest.fixture
    def show(self, open_page, tmp_path):
        """Open the page of some data; it must not complain."""

        def open_(data, width=1280):
            (tmp_path / "page.html").write_text(render(data))
            self.page = open_page((tmp_path / "page.html").as_uri(), width)
            return self.page

        yield open_
        assert self.page.problems == []

    def slide(self, page, generation):
        page.locator("#generation").evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }",
            str(generation),
        )

    def test_the_front_grows_with_the_generations(self, show, data):
        page = show(data)
        for row in data["archive"]["fronts"]:
            self.slide(page, row["generation"])
            held = page.locator(".point.held")
            ids = {int(held.nth(at).get_attribute("data-id")) for at in range(held.count())}
            assert ids == set(row["ids"])
            path = page.locator("#space .front").get_attribute("d")
            assert path.count("M") + path.count("L") == len(row["ids"])
            assert page.locator(".point.held.faded").count() == 0
            bred = {id_ for one in data["candidates"] if one["generation"] == row["generation"]
                    for id_ in one["parents"]}  # fmt: skip
            assert page.locator(".parent").count() == len(bred)
            words = page.locator("#population").inner_text()
            assert f"{len(ids)} of {RANGE['bins']} cost ranges" in words
        assert "cost range" in page.locator("#legend").inner_text()

    def test_parents_are_chosen_by_a_click_and_the_archive_is_told(self, show, data):
        rows = list(data["candidates"])
        rows[1] = {**rows[1], "operator": "l1, 1 units less"}  # as runs record it
        page = show({**data, "candidates": rows})
        child = next(one for one in data["candidates"] if len(one["parents"]) == 2 and one["status"] == "ok")
        first, second = child["parents"]
        page.select_option("#candidate", str(child["id"]))
        assert f"cross of {first} and {second}" in page.locator("#details").inner_text()
        page.locator("#details button.link").nth(1).click()
        assert page.locator("#details h3").inner_text() == f"Candidate {second}"
        assert page.locator("#candidate").input_value() == str(second)
        page.select_option("#candidate", "0")
        assert "the original, nothing cut" in page.locator("#details").inner_text()
        page.select_option("#candidate", "1")
        assert "seed: l1, 1 unit less" in page.locator("#details").inner_text()
        now, ever = data["archive"]["fronts"][-1]["ids"], data["archive"]["entered"]
        for id_, word in ((now[0], "yes"), (min(set(ever) - set(now)), "replaced since"), (10, "no")):
            page.select_option("#candidate", str(id_))
            told = page.locator("#details dt", has_text="In the archive").locator("xpath=following::dd[1]")
            assert told.inner_text() == word

    def test_a_narrow_page_does_not_scroll_sideways(self, show, data):
        page = show(data, width=390)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert not page.locator("#tables table").is_visible()  # folded until somebody asks
        page.locator("#tables summary").click()
        assert page.locator("#tables table").is_visible()
        assert page.locator("#tables tbody tr").count() == len(data["archive"]["sources"])
        assert page.evaluate("document.documentElement.scrollWidth") == 390

    def test_hostile_names_run_nothing(self, show, data):
        rows = [{**one, "operator": HOSTILE} for one in data["candidates"]]
        page = show({**data, "candidates": rows})
        assert HOSTILE in page.locator("#details").inner_text()
        assert page.locator("#details img").count() == 0

    def test_a_run_of_the_paper_keeps_its_staircase(self, show, tmp_path):
        page = show(collect(make_run(tmp_path / "run")))
        assert page.locator("#space .front.archive").count() == 0
        assert "best trade-offs" in page.locator("#legend").inner_text()
        details = page.locator("#details").inner_text()
        assert "Origin" not in details and "archive" not in details
