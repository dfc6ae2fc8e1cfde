"""A real browser for the tests of the page; without one they are skipped."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",  # containers run as root, where Chromium's sandbox refuses to start
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def window(browser):
    """One window for all tests, which keeps all that goes wrong or over the network.

    To open another address in it is quicker than a new window.
    """
    page = browser.new_page()
    page.problems, page.requests = [], []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: (page.problems.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: page.requests.append(request.url))
    yield page
    page.close()


@pytest.fixture
def open_page(window):
    """Open an address at a width, in light or dark."""

    def open_(address, width=1280, height=900, scheme="light"):
        window.goto("about:blank")  # and nothing of the page before is heard any more
        window.problems.clear()
        window.requests.clear()
        window.set_viewport_size({"width": width, "height": height})
        window.emulate_media(color_scheme=scheme)
        window.goto(address)
        return window

    return open_
