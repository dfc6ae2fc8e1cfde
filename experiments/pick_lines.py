"""The lines of the table of pruned networks: the paper's figures, ours, and what has not been run yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cells import NOT_RUN, PAPER, Line, milliseconds, percent, share, source
from deeppruning.amounts import duration
from deeppruning.roles import KNEE, ORIGINAL, ROLES, TARGET

GUIDED = "ours, guided"


@dataclass(frozen=True)
class PickLine(Line):
    """A pick of a search, or the network that was searched."""

    TITLES = (
        "network", "data", "pick", "who", "test error", "FLOPs cut", "parameters cut", "latency", "epochs",
        "time", "seed", "source",
    )  # fmt: skip
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


def paper_lines(group: Group, scratch: Mapping[str, Any] | None) -> Iterator[PickLine]:
    """What the paper has of a network; nothing where it has none."""
    if group.paper is None:
        return
    table, epochs = f"Table {group.paper['table']}", str(group.paper["epochs"])
    yield PickLine(ORIGINAL, PAPER, percent(group.paper[ORIGINAL]["error"]), source="Table 1")
    for role in ROLES:
        figures = group.paper[role]
        cut = percent(figures["cut"])
        yield PickLine(role, PAPER, percent(figures["error"]), cut, epochs=epochs, source=table)
    if scratch is not None:
        yield PickLine(
            f"one {KNEE}, weights re-drawn",
            PAPER,
            f"{percent(scratch['error'])} (fine-tuned {percent(scratch['finetuned_error'])})",
            percent(scratch["cut"]),
            epochs=str(scratch["epochs"]),
            source="text",
        )


def our_lines(group: Group) -> Iterator[PickLine]:
    """What we have of a network, and what we have not."""
    for row, run in group.ours:
        yield from _run_lines(row, run)
    for searched, row in group.waiting:
        yield PickLine("all", searched, NOT_RUN, source=f"[options](../../experiments/{row}.toml)")


def longest_training(networks: Sequence[Mapping[str, Any]], role: str) -> Mapping[str, Any] | None:
    """The network that holds a role after its most epochs; None where none does."""
    held = [one for one in networks if role in one["roles"] and not _redrawn(one)]
    return max(held, key=lambda one: one["epochs"], default=None)


def _run_lines(row: str, run: Mapping[str, Any]) -> Iterator[PickLine]:
    searched, seed, made_by = who(run["options"]["search"]), str(run["seed"]), source(row)
    original = run["original"]
    latency = milliseconds(original["latency_ms"])
    yield PickLine(
        ORIGINAL, searched, share(original.get("test_error")), latency=latency, seed=seed, source=made_by
    )
    for pick, one in _shown(run["networks"]):
        before = one["untrained_error"]
        apart = before is not None and one["epochs"] and not _redrawn(one)
        told = f" ({share(before)} untrained)" if apart else ""
        yield PickLine(
            f"{pick} ({one['candidate']})",
            searched,
            f"failed: {one['failure']}" if one.get("failure") else f"{share(one['test_error'])}{told}",
            percent(100 - one["flops_left"]),
            percent(100 - one["params_left"]),
            milliseconds(one["latency_ms"]),
            str(one["epochs"]),
            f"{duration(run['search_seconds'])} + {duration(one['seconds'])}",
            seed,
            made_by,
        )


def _shown(networks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The longest training of every pick; then trainings from re-drawn weights, and other candidates."""
    for role in (*ROLES, TARGET):
        longest = longest_training(networks, role)
        if longest is not None:
            yield role, longest
    for one in networks:
        if _redrawn(one):
            yield f"{', '.join(one['roles']) or 'candidate'}, weights re-drawn", one
        elif not one["roles"]:
            yield "candidate", one


def _redrawn(network: Mapping[str, Any]) -> bool:
    return bool(network.get("options", {}).get("from_scratch"))
