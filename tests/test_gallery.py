"""The gallery: its index is current, and no page tells of the machine that it was made on."""

import re
from pathlib import Path

import pytest

from browser_pages import HOSTILE
from gallery import GALLERY, LARGEST, data_of, index_text, listed, outcome, page_data, page_text, told
from gallery_thumbnail import thumbnail_text
from report_runs import make_run

PAGES = sorted(GALLERY.glob("*.html"))


def test_the_index_is_current() -> None:
    assert (GALLERY / "index.md").read_text() == index_text(listed()), "run `python tools/gallery.py`"
    assert [f"{page['name']}.html" for page in listed()] != []
    assert sorted(f"{page['name']}.html" for page in listed()) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_finished_small_and_about_the_run_alone(page: Path) -> None:
    text, data = page.read_text(), data_of(page)
    assert data["status"] == "finished"
    assert len(text.encode()) <= LARGEST
    assert re.findall(r"[\"' ]/(?:home|root|tmp|work|Users|usr|var|opt)/[^\"' ]*", text) == []
    assert text.count('<a href="index.html">') == 1
    assert page.with_suffix(".svg").read_text() == thumbnail_text(data)


def test_what_is_told_is_read_from_the_run(tmp_path: Path) -> None:
    data = page_data(make_run(tmp_path / "mine"))
    assert told(data) == ("15 candidates in 22 s. The networks that were chosen: trained for 2 epochs.")
    assert outcome(data).splitlines() == [
        "- original: error 8.0 %",
        "- heavy: 90.0 % of the FLOPs, error 7.0 %",
        "- knee: 42.0 % of the FLOPs, error 10.0 %",
        "- light: 34.0 % of the FLOPs, error 20.0 %",
    ]
    assert thumbnail_text(data).count("<circle") == 15 + 3


def test_a_page_is_read_back_and_rendered_again(tmp_path: Path) -> None:
    written = page_text(page_data(make_run(tmp_path / "mine")))
    (tmp_path / "mine.html").write_text(written)
    assert page_text(data_of(tmp_path / "mine.html")) == written


def test_a_path_of_this_machine_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mine", model={"spec": "made by /home/me/nets.py"})
    with pytest.raises(ValueError, match=r"mine would show /home/me/nets\.py"):
        page_data(run)
    hidden = make_run(tmp_path / "other", model={"spec": "/home/me/nets.py:tiny"})
    assert page_data(hidden)["title"] == "nets.py:tiny on digits"


def test_names_are_shown_as_text(tmp_path: Path) -> None:
    text = page_text(page_data(make_run(tmp_path / "mine", model={"spec": HOSTILE.replace("//", "")})))
    assert "<script>document" not in text and "<img" not in text
