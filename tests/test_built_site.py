"""The documentation site as built: every link leads somewhere, and nothing is fetched from elsewhere."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import deeppruning

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.slow


class _Links(HTMLParser):
    """What a page leads to, what is loaded with it, and the places in it that can be led to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
                if tag != "a":
                    self.loaded.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; pip install '.[docs]' brings what builds the site")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


def test_every_link_of_the_built_site_leads_somewhere(site: Path) -> None:
    pages = {path: _Links(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        # A server shows the page of errors at any address, so its links are absolute.
        base = site if path.name == "404.html" else path.parent
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            end = Path(os.path.normpath(base / unquote(parts.path).lstrip("/"))) if parts.path else path
            end = end / "index.html" if end.is_dir() else end
            place = unquote(parts.fragment)
            if not end.is_file() or (place and end in pages and place not in pages[end].places):
                dead.append((str(path.relative_to(site)), target))
    assert dead == []
    assert len(pages) > 20
    assert sum(len(page.targets) for page in pages.values()) > 1000


def test_the_built_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = [_Links(path) for path in site.rglob("*.html")]
    assert {target for page in pages for target in page.loaded if urlsplit(target).netloc} == set()


def test_the_reference_is_read_from_the_docstrings(site: Path) -> None:
    page = _Links(site / "api.html")
    entered = {place.rsplit(".", 1)[-1] for place in page.places if place.startswith("deeppruning.")}
    assert set(deeppruning.__all__) <= entered
    homes = {name: getattr(deeppruning, name) for name in deeppruning.__all__ if name != "__version__"}
    shown = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    firsts = {name: (one.__doc__ or "").splitlines()[0] for name, one in homes.items()}
    plain = {name: first.replace("`", "").replace("'", "") for name, first in firsts.items()}
    assert [name for name, first in plain.items() if first not in re.sub(r"'|&#39;", "", shown)] == []
    assert "&gt;&gt;&gt; graph" in shown  # the examples stand as code, not as quotations


WITH_CODE_AND_TABLES = ("first-steps.html", "extending.html", "results/index.html")
LOOKED_AT = [
    (page, width, scheme)
    for page in ("index.html", "gallery/index.html", *WITH_CODE_AND_TABLES)
    for width in (390, 1280)
    for scheme in ("light", "dark")
]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_axe_finds_nothing_and_pages_fit(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    beside = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
    script = Path(os.environ.get("AXE_CORE") or beside)
    if not script.is_file():
        pytest.skip("no axe-core: run `npm install axe-core` in tests/, or name its axe.min.js in AXE_CORE")
    found = {}
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, width, scheme in LOOKED_AT:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto((site / name).as_uri())
            page.add_script_tag(path=script)
            report = page.evaluate("axe.run()")
            assert len(report["passes"]) > 20
            wide = page.evaluate("document.documentElement.scrollWidth")
            ids = [(one["id"], one["nodes"][0]["html"][:200]) for one in report["violations"]]
            found[name, width, scheme] = (ids, max(wide - width, 0))
            page.close()
        browser.close()
    assert found == dict.fromkeys(LOOKED_AT, ([], 0))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_pages_opened_from_a_folder_can_be_searched(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, asked = browser.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{(site / 'index.html').as_uri()}?q=quantised")
        found = page.locator("a.md-search-result__link").first
        found.wait_for(state="attached")
        assert "export.html" in (found.get_attribute("href") or "")
        browser.close()
    assert [url for url in asked if not url.startswith("file:")] == []
