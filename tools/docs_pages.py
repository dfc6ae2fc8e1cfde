"""Pages of the documentation site that are not in docs/, and links adapted to them."""

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Page of the site -> the file of the repository that it shows.
BROUGHT = {
    "tutorial.md": "examples/tutorial.ipynb",
    "benchmarks.md": "benchmarks/README.md",
    "experiments.md": "experiments/README.md",
    "security.md": "SECURITY.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
_HOMES = {"README.md": "index.md", **{origin: page for page, origin in BROUGHT.items()}}
_LINK = re.compile(r"(\]\()([^)#\s]+)")  # as far as the anchor


def brought_page(page: str) -> str:
    """The Markdown of a page that is kept elsewhere in the repository, its links as the site has them."""
    origin = BROUGHT[page]
    text = (ROOT / origin).read_text(encoding="utf-8")
    if not origin.endswith(".ipynb"):
        return with_site_links(text, origin, page)
    title, _, rest = with_site_links(notebook_markdown(text), origin, page).partition("\n")
    # Named after the links were turned, which would lead back to this page.
    return f"{title}\n\nThis page is a notebook: [{Path(origin).name}]({Path(origin).name}).\n{rest}"


def source_page(origin: str) -> str:
    """A file of code as a page; found by the links to it, not by the search."""
    text = (ROOT / origin).read_text(encoding="utf-8").rstrip()
    language = "python" if origin.endswith(".py") else "text"
    return f"---\nsearch:\n  exclude: true\n---\n\n# {origin}\n\n`````{language}\n{text}\n`````\n"


def notebook_markdown(notebook: str) -> str:
    """The cells of a notebook one after the other, without their outputs."""
    shown = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        shown.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(shown) + "\n"


def with_site_links(text: str, origin: str, page: str) -> str:
    """Links of a file of the repository, turned to where the site has what they lead to.

    >>> with_site_links("[b](../benchmarks/README.md#depthpy)", "docs/latency.md", "latency.md")
    '[b](benchmarks.md#depthpy)'
    """

    def turned(match: re.Match[str]) -> str:
        place = _site_place(_target(origin, match[2]))
        if place is None:
            return match[0]
        return match[1] + posixpath.relpath(place, posixpath.dirname(page) or ".")

    return _LINK.sub(turned, text)


def linked_sources(text: str, origin: str) -> set[str]:
    """Files that a text links to and that are no page: the site shows them as they are."""
    targets = {_target(origin, link) for _, link in _LINK.findall(text)}
    return {target for target in targets if (_site_place(target) or "").startswith("files/")}


def source_place(origin: str) -> str:
    """Where the site has a file of code."""
    return f"files/{origin}.md"


def _target(origin: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _site_place(target: str) -> str | None:
    """Where the site has a file of the repository; None for what is no such file, which stays as it is."""
    if target.startswith("..") or not (ROOT / target).is_file():
        return None
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return _HOMES.get(target) or source_place(target)
