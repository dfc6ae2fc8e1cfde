"""Writes docs/gallery: the report pages of real runs, to be looked at before anything is installed.

python tools/gallery.py [RUN ...]

The page of each run folder that is given is written anew; `tools/gallery.toml` lists the runs by the names of
their folders. Then all pages are rendered with the template as it is now, and the index is written from what
the pages contain.
"""

import json
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.amounts import duration
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.system.toml import read_toml
from gallery_thumbnail import thumbnail_text

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"
LARGEST = 400_000  # bytes of a page
BACK = '<p class="small"><a href="index.html">All runs of the gallery</a></p>\n'
INTRODUCTION = """\
# Gallery

Report pages of real runs, as the program wrote them: click through one before you install anything. What is
said of each run is read from it. The runs are short, made to show the page on a busy machine; for errors and
times, see the [measured results](../results/index.md). `tools/gallery.py` writes these pages from runs.
"""


def page_data(run: Path) -> dict[str, Any]:
    """What the page of a run shows, without what only this machine knows."""
    data: dict[str, Any] = _called_plainly(collect(run))
    text = json.dumps(data, default=str)
    private = sorted({*re.findall(r"(?<![\w./:])/(?:[\w.-]+/)+[\w.-]*", text), *_hosts(text)})
    if private:
        raise ValueError(f"the page of {run.name} would show {', '.join(private)}: not for others to see")
    return data


def _called_plainly(value: Any) -> Any:
    """Commands by the name of the program, wherever it is installed here."""
    if isinstance(value, Mapping):
        return {key: _called_plainly(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_called_plainly(entry) for entry in value]
    if isinstance(value, str):
        return re.sub(r"^\S+/deeppruning(?= )|^\S*python\S* -m deeppruning(?= )", "deeppruning", value)
    return value


def _hosts(text: str) -> set[str]:
    name = socket.gethostname()
    return {name} if name in re.findall(r"[\w.-]+", text) else set()


def page_text(data: Mapping[str, Any]) -> str:
    """The page, with a way back to the gallery."""
    before, main, after = render(data).partition("<main>\n")
    text = before + main + BACK + after
    if len(text.encode()) > LARGEST:
        raise ValueError(f"the page of {data['run']} has {len(text.encode()):,} bytes, more than {LARGEST:,}")
    return text


def data_of(page: Path) -> dict[str, Any]:
    """What a page of the gallery contains."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise ValueError(f"{page.name} is no report page")
    data: dict[str, Any] = json.loads(found[1])
    return data


def told(data: Mapping[str, Any]) -> str:
    """What was done, from the run itself."""
    candidates, search = data["candidates"], data["config"]["search"]
    seconds = sum(row["seconds"] or 0 for row in candidates)
    tested = [f"tested on {data['test_images']:,} test images"] if data["test_images"] else []
    epochs = max((row["epoch"] for curve in data["curves"] for row in curve["epochs"]), default=0)
    trained = [f"trained for {epochs:g} epoch{'s' * (epochs != 1)}"] if epochs else []
    if data["by_drift"] or data["config"]["finetune"]["epochs"] == 0:
        trained = ["not trained"]  # without a recorded epoch a task of one's own may still have trained
    sample = search.get("sample")
    judged = f", each refitted and judged with {sample:,} inputs" if sample else ""
    chosen = ", ".join(trained + tested)
    text = f"{len(candidates)} candidates in {duration(seconds)}{judged}."
    return f"{text} The networks that were chosen: {chosen}." if chosen else text


def outcome(data: Mapping[str, Any]) -> str:
    """The networks to choose from, in one line each."""
    word = "drift" if data["by_drift"] else "error"
    original = data["original"]
    lines = [f"- original: {word} {_percent(original['test_error'])}"]
    shown = set()
    for one in data["solutions"]:
        if one["id"] in shown:
            continue
        shown.add(one["id"])
        roles = " and ".join(other["role"] for other in data["solutions"] if other["id"] == one["id"])
        left = _percent(one["flops"] / original["flops"])
        lines.append(f"- {roles}: {left} of the FLOPs, {word} {_percent(one['test_error'])}")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def index_text(pages: Sequence[Mapping[str, Any]]) -> str:
    """The page that leads to all others."""
    parts = [INTRODUCTION]
    for page in pages:
        name, data = page["name"], data_of(GALLERY / f"{page['name']}.html")
        seen = f"{page['title']}: every candidate of the search, error against FLOPs"
        parts.append(
            f"## {page['title']}\n\n[![{seen}]({name}.svg){{ width=320 }}]({name}.html)\n\n"
            f"{page['about']} {told(data)}\n\n{outcome(data)}\n\n[Open the report page]({name}.html) of\n\n"
            f"```\n{page['command'].strip()}\n```\n"
        )
    return "\n".join(parts)


def listed() -> list[dict[str, Any]]:
    """The runs of the gallery that have a page."""
    pages: list[dict[str, Any]] = read_toml(ROOT / "tools" / "gallery.toml")["page"]
    return [page for page in pages if (GALLERY / f"{page['name']}.html").is_file()]


def main(runs: Sequence[Path]) -> None:
    """Write the pages of these runs, then what follows from all pages."""
    known = {page["name"] for page in read_toml(ROOT / "tools" / "gallery.toml")["page"]}
    for run in runs:
        if run.resolve().name not in known:
            raise ValueError(f"{run} is none of {', '.join(sorted(known))}, which tools/gallery.toml lists")
        data = page_data(run)
        (GALLERY / f"{data['run']}.html").write_text(page_text(data), encoding="utf-8")
    for page in listed():
        path = GALLERY / f"{page['name']}.html"
        data = data_of(path)
        path.write_text(page_text(data), encoding="utf-8")
        path.with_suffix(".svg").write_text(thumbnail_text(data), encoding="utf-8")
        print(path)
    (GALLERY / "index.md").write_text(index_text(listed()), encoding="utf-8")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
