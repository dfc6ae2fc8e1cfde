"""The page of a run from its templates: self-contained, its data embedded, its content policy hashed."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from deeppruning.reporting.data import collect
from deeppruning.reporting.plots import draw_plots
from deeppruning.reporting.section import SECTIONS
from deeppruning.system.files import write_atomically

PAGE = "report.html"
_TEMPLATES = files("deeppruning.reporting").joinpath("template")
# Around the scripts of the sections, as one script: the later ones use what the earlier ones define.
FIRST, LAST = ("dom.js", "limits.js", "space.js"), ("cards.js", "sections.js", "page.js")


def write_report(run_dir: Path | str) -> Path:
    """Write RUN/report.html and RUN/plots/ from the current contents of a run, and return the page's path."""
    data = collect(run_dir)
    target = Path(run_dir) / PAGE
    write_atomically(target, render(data).encode())
    draw_plots(data, Path(run_dir) / "plots")
    return target


def render(data: Mapping[str, Any], *, live: bool = False) -> str:
    """The page as text; a live one asks its server for updates.

    All contents of the run are embedded as JSON and shown as text, never as markup. The content security
    policy is the second line of defence: only the script with the named hash runs, and nothing is fetched
    from anywhere (for a live page: from anywhere else).
    """
    style, script = _page_style_and_script()
    page = _read_template("page.html")
    parts = {
        "policy": policy(live=live),
        "title": html.escape(f"{data['title']}: {data['status']}"),
        "live": "true" if live else "false",
        "style": style,
        "script": script,
        "sections": "\n".join(_of_sections("html")),
        "data": embed(data),
    }
    # One pass over the template alone: a placeholder inside the data is never taken for one.
    pieces = page.split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def policy(*, live: bool) -> str:
    """The content security policy: a page may run its own script, and nothing else."""
    style, script = _page_style_and_script()
    return (
        f"default-src 'none'; script-src '{_csp_hash(script)}'; style-src '{_csp_hash(style)}'; "
        f"img-src data:; connect-src '{'self' if live else 'none'}'; base-uri 'none'; form-action 'none'"
    )


def _page_style_and_script() -> tuple[str, str]:
    script = "\n".join([*map(_read_template, FIRST), *_of_sections("js"), *map(_read_template, LAST)])
    return _read_template("page.css"), f'"use strict";\n(() => {{\n{script}\n}})();\n'


def _of_sections(kind: str) -> list[str]:
    """The markup or the scripts of those sections that have their own, in the order of the page."""
    names = [f"{section}.{kind}" for section in SECTIONS]
    return [_read_template(name) for name in names if _TEMPLATES.joinpath(name).is_file()]


def _read_template(name: str) -> str:
    return _TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def embed(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element, with any strings.

    >>> embed({"name": "</script>&"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u0026"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=str)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
