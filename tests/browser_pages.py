"""What the tests of the page in a browser share: the page of a run, and the user's hand on it."""

from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render

HOSTILE = (
    '</script><script>document.title="caught"</script><img src="http://127.0.0.1:9/x" onerror="alert(1)">'
)


def save_page(run):
    """The page alone: the plots would take longer than all else here."""
    path = run / "report.html"
    path.write_text(render(collect(run)))
    return path


def text(page, selector):
    return page.locator(selector).inner_text()


def slide(page, selector, value):
    page.locator(selector).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(value)
    )
