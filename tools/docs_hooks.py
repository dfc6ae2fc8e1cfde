"""Hooks that mkdocs calls while it builds the site: they add pages from outside docs/ and adapt links."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs_pages import (
    BROUGHT,
    ROOT,
    brought_page,
    linked_sources,
    source_page,
    source_place,
    with_site_links,
)

SHIM = "assets/javascripts/iframe-worker.js"
_FLAG = re.compile(r"(?<!\S)-[^\s]{1,27}(?!\S)")  # longer ones would not fit on a phone
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]+)</code>")
_FIGURE = re.compile(r"(?<=\d) (?=%|ms\b|s\b|min\b)|(?<=[\d>]) (?=± )|(?<=±) (?=\d)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that the repository keeps elsewhere."""
    origins = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    for page, origin in BROUGHT.items():
        files.append(File.generated(config, page, content=brought_page(page)))
        if origin.endswith(".md"):
            origins[origin] = (ROOT / origin).read_text(encoding="utf-8")
        else:
            name = origin.rsplit("/", 1)[-1]
            files.append(File.generated(config, name, abs_src_path=str(ROOT / origin)))
    for source in sorted(set().union(*(linked_sources(text, origin) for origin, text in origins.items()))):
        place, apart = source_place(source), InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, place, content=source_page(source), inclusion=apart))
    files.append(File.generated(config, SHIM, abs_src_path=str(ROOT / "tools" / "docs_search.js")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of the pages in docs/; those that were brought come with theirs turned."""
    if page.file.generated_by is not None:
        return markdown
    return with_site_links(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say where lines may break: browsers break flags after `--`, code in narrow cells within words, figures
    before their units."""
    html = _CODE.sub(_whole_flags, html)
    return _CELL.sub(lambda cell: _FIGURE.sub("&nbsp;", _CODE.sub(_breakable, cell[0])), html)


def _whole_flags(code: re.Match[str]) -> str:
    return "<code>" + _FLAG.sub(r'<span class="flag">\g<0></span>', code[1]) + "</code>"


def _breakable(code: re.Match[str]) -> str:
    return "<code>" + re.sub(r"(?<=[/(._=])(?=\w)", "<wbr>", code[1]) + "</code>"
