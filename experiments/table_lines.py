"""The lines of the tables of results: the paper's figures, ours, and what has not been run yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeppruning.amounts import duration
from deeppruning.roles import KNEE, ORIGINAL, ROLES, SOLUTIONS

NOT_RUN = "not run yet"
PAPER = "the paper"
GUIDED = "ours, guided"
_TITLES = (
    "network", "data", "pick", "who", "test error", "FLOPs cut", "parameters cut", "latency", "epochs",
    "time", "seed", "source",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of a table, under the titles above but for the first two."""

    pick: str
    who: str
    error: str
    flops_cut: str = ""
    params_cut: str = ""
    latency: str = ""
    epochs: str = ""
    time: str = ""
    seed: str = ""
    source: str = ""

    @staticmethod
    def heading() -> str:
        """The titles, and the line below them."""
        return f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}\n"

    def text(self, network: str, data: str) -> str:
        """The line as Markdown."""
        cells = (network, data, *(getattr(self, name) for name in self.__dataclass_fields__))
        return "| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in cells) + " |\n"


@dataclass(frozen=True)
class Group:
    """One network on one data set: the paper's figures, our runs by row, and rows that wait."""

    name: str
    paper: Mapping[str, Any] | None = None
    ours: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)  # whose search, and the row's name

    @property
    def is_ours(self) -> bool:
        """Whether we have run it, or have options to run it by."""
        return bool(self.ours or self.waiting)


def who(search: Mapping[str, Any]) -> str:
    """Whose search it was, by its options.

    >>> who({"strategy": "guided", "selection": "plus"}), who({"strategy": "paper", "selection": "comma"})
    ('ours, guided', 'ours, `--preset paper`, comma')
    """
    if search.get("strategy", "paper") == "guided":
        return GUIDED
    return f"ours, `--preset paper`, {search.get('selection', 'plus')}"


def paper_lines(group: Group, scratch: Mapping[str, Any] | None) -> Iterator[Line]:
    """What the paper has of a network; nothing where it has none."""
    if group.paper is None:
        return
    source, epochs = f"Table {group.paper['table']}", str(group.paper["epochs"])
    yield Line(ORIGINAL, PAPER, _percent(group.paper[ORIGINAL]["error"]), source="Table 1")
    for role in ROLES:
        figures = group.paper[role]
        cut = _percent(figures["cut"])
        yield Line(role, PAPER, _percent(figures["error"]), cut, epochs=epochs, source=source)
    if scratch is not None:
        yield Line(
            f"one {KNEE}, weights re-drawn",
            PAPER,
            f"{_percent(scratch['error'])} (fine-tuned {_percent(scratch['finetuned_error'])})",
            _percent(scratch["cut"]),
            epochs=str(scratch["epochs"]),
            source="text",
        )


def our_lines(group: Group) -> Iterator[Line]:
    """What we have of a network, and what we have not."""
    for row, run in group.ours:
        yield from _run_lines(row, run)
    for searched, row in group.waiting:
        yield Line("all", searched, NOT_RUN, source=f"[options](../../experiments/{row}.toml)")


def trained_lines(
    paper: Sequence[Mapping[str, Any]], ours: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[str, str, Line]]:
    """Name, data and line of networks that are trained from scratch, ours below the paper's."""
    waiting = {one["model"]: one["name"] for one in paper}
    for one in paper:
        line = Line(
            ORIGINAL, PAPER, _percent(one["error"]), epochs=str(one["epochs"]), source=f"Table {one['table']}"
        )
        yield one["name"], one["data"], line
    for row, run in ours:
        options = run["options"]
        line = Line(
            ORIGINAL,
            "ours",
            _share(run["test_error"]),
            epochs=str(run["epochs"]),
            time=duration(run["seconds"]),
            seed=str(run["seed"]),
            source=_source(row),
        )
        yield waiting.pop(options["model"], options["model"]), options["data"], line
    for name in waiting.values():
        yield name, "", Line(ORIGINAL, "ours", NOT_RUN)


def _run_lines(row: str, run: Mapping[str, Any]) -> Iterator[Line]:
    searched, seed, source = who(run["options"]["search"]), str(run["seed"]), _source(row)
    original = run["original"]
    latency = _latency(original["latency_ms"])
    yield Line(
        ORIGINAL, searched, _share(original.get("test_error")), latency=latency, seed=seed, source=source
    )
    for pick, one in _shown(run["networks"]):
        before = one["untrained_error"]
        apart = before is not None and one["epochs"] and not _redrawn(one)
        told = f" ({_share(before)} untrained)" if apart else ""
        yield Line(
            f"{pick} ({one['candidate']})",
            searched,
            f"failed: {one['failure']}" if one.get("failure") else f"{_share(one['test_error'])}{told}",
            _percent(100 - one["flops_left"]),
            _percent(100 - one["params_left"]),
            _latency(one["latency_ms"]),
            str(one["epochs"]),
            f"{duration(run['search_seconds'])} + {duration(one['seconds'])}",
            seed,
            source,
        )


def _shown(networks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The longest training of every pick; then trainings from re-drawn weights, and other candidates."""
    for role in SOLUTIONS:
        held = [one for one in networks if role in one["roles"] and not _redrawn(one)]
        if held:
            yield role, max(held, key=lambda one: one["epochs"])
    for one in networks:
        if _redrawn(one):
            yield f"{', '.join(one['roles']) or 'candidate'}, weights re-drawn", one
        elif not one["roles"]:
            yield "candidate", one


def _redrawn(network: Mapping[str, Any]) -> bool:
    return bool(network.get("options", {}).get("from_scratch"))


def _source(row: str) -> str:
    return f"[record](../../experiments/records/{row}.json), [command](#{row.lower()})"


def _share(value: float | None) -> str:
    return "not tested" if value is None else _percent(100 * value)


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _latency(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:.1f} ms"
