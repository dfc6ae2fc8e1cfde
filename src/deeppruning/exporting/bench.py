"""Whether the thin networks of a run are really faster: all of them measured in turns, side by side."""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import has_onnx, require, run_session
from deeppruning.errors import GraphError, InputError, RunError
from deeppruning.exporting.bench_table import BenchFigures, float_kind
from deeppruning.exporting.calibration import Material, MaterialSource
from deeppruning.exporting.given import AtHand, beside_original
from deeppruning.exporting.int8 import SUFFIX
from deeppruning.exporting.memory import peak_memory
from deeppruning.exporting.networks import RunNetwork, failure_of, read_network
from deeppruning.exporting.run_file import FOLDER
from deeppruning.exporting.sessions import FLOAT, INT8, Sessions, open_sessions
from deeppruning.jobs.front import Front
from deeppruning.roles import ORIGINAL, ROLES, in_order
from deeppruning.runs.facts import AS_LOADED, BENCH, ORIGINAL_FIGURES, solution_fact
from deeppruning.runs.facts import INT8 as INT8_FIGURES
from deeppruning.runs.folder import RunFolder
from deeppruning.system.device import choose_device, torch_threads

WARM_UP = 3
ROUNDS = 50
FEWEST_ROUNDS = 7
SECONDS = 15.0  # after which a measurement of unstated length ends, given its fewest rounds
NOTABLE = 0.2  # the share of FLOPs saved from which a network is expected to be faster
NOISY = 0.2  # a spread beyond this share of the median says more of the machine than of the network
ADVICE = (
    "try a new search with --objective latency (without --round-to, if it was given), or a larger batch: "
    "a small network spends its time on calls, not on arithmetic"
)

Forward = Callable[[], Any]
Key = TypeVar("Key", bound=Hashable)


def bench_run(
    run_dir: str | Path,
    *,
    batches: Iterable[int] = (1, 32),
    rounds: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
    spec: str | None = None,
    trust_run: bool = False,
    int8: bool = False,
    source: MaterialSource | None = None,
) -> BenchFigures:
    """Size, memory and latency of the original, the picks and the targets, as JSON values.

    `rounds` forward passes of each network in turn; by default up to 50, fewer where they are slow.
    onnxruntime is measured on the processor, where it is installed. `model`, `example_input`,
    `spec` and `trust_run` as in `read_network`. With `int8` all are quantised, too, by images of the
    `source`; without, int8 files that were exported into the run are measured beside the rest.
    """
    batches, place = tuple(batches), choose_device(device)
    _check_options(batches, rounds, threads, place, int8=int8, source=source)
    with RunFolder.open(run_dir, read_only=True) as run:
        roles = in_order((*ROLES, *(path.stem for path in run.path.glob("target*.safetensors"))))
    names = (ORIGINAL, *(role for role in roles if not failure_of(run_dir, role)))
    networks = {
        name: read_network(
            run_dir, name, model=model, example_input=example_input, spec=spec, trust_run=trust_run
        )
        for name in names
    }
    with RunFolder.open(run_dir, read_only=True) as run:
        facts = run.history.facts()
    found = {name: _sizes(network, _recorded(name, facts)) for name, network in networks.items()}
    # A candidate that holds several roles is one network, and has one speed.
    candidates = {name: facts.get(solution_fact(name).key, {}).get("id", name) for name in networks}
    twin = {name: next(one for one in networks if candidates[one] == candidates[name]) for name in networks}
    material = (source or MaterialSource(trust_run=trust_run)).open(run_dir) if int8 else None
    files = {name: Path(run_dir) / FOLDER / f"{name}{SUFFIX}" for name in networks}
    exported = {twin[name]: file for name, file in files.items() if file.is_file()}
    known = facts.get(INT8_FIGURES.key, {})
    how = _Measuring(batches, rounds, threads, place)
    return how.figures(networks, found, twin, exported, material, known)


def bench_given(
    given: Front | AtHand,
    *,
    batches: Iterable[int],
    rounds: int | None,
    threads: int,
    device: str,
    model: nn.Module | None,
    example_input: Tensor | None,
    int8: bool,
    source: MaterialSource | None,
) -> BenchFigures:
    """The same for a network that is at hand, or the picks of a front, beside the original."""
    batches, place = tuple(batches), choose_device(device)
    _check_options(batches, rounds, threads, place, int8=int8, source=source)
    networks, flops = beside_original(given, model, example_input)
    found = {name: _sizes(one, {"flops": flops[name]}) for name, one in networks.items()}
    if int8 and source is None:
        raise InputError("int8 of a network that is no run's needs calibration: some hundred inputs of it")
    material = source.open(Path()) if source is not None else None
    twin = {name: next(one for one in networks if networks[one] is networks[name]) for name in networks}
    return _Measuring(batches, rounds, threads, place).figures(networks, found, twin, {}, material, {})


@dataclass(frozen=True)
class _Measuring:
    """How networks are measured."""

    batches: tuple[int, ...]
    rounds: int | None
    threads: int
    place: torch.device

    def figures(
        self,
        networks: Mapping[str, RunNetwork],
        found: dict[str, dict[str, Any]],
        twin: Mapping[str, str],
        exported: Mapping[str, Path],
        material: Material | None,
        known: Mapping[str, Any],
    ) -> BenchFigures:
        """Latencies beside the sizes in `found`; the networks that are another's `twin` are not run."""
        different = {name: networks[name] for name in twin.values()}
        with torch_threads(self.threads):
            wanted = self.place.type == "cpu" and has_onnx()
            sessions = open_sessions(different, self.threads, exported, material) if wanted else Sessions()
            if material is not None and not sessions.small:
                raise GraphError("; ".join(sessions.troubles) or "no network can be exported to ONNX")
            for forwards in _measurements(different, sessions, self.batches, self.place):
                originals = {key: (float_kind(key[0]), ORIGINAL) for key in forwards}
                for (how, measured), timing in in_turns(forwards, self.rounds, originals).items():
                    for name in networks:
                        if twin[name] == measured:
                            found[name]["latency_ms"][how] = timing
        figures = {name: sessions.figures[twin[name]] for name in networks if twin[name] in sessions.figures}
        known = {**known, **figures}
        beside = {name: known[name] for name in networks if name in known and twin[name] in sessions.small}
        warnings = [*warnings_for(found), *int8_warnings(found), *sessions.troubles]
        return BenchFigures(
            threads=self.threads,
            device=str(self.place),
            onnxruntime=any(how.startswith("onnxruntime") for how in found[ORIGINAL]["latency_ms"]),
            networks=found,
            warnings=warnings,
            advice=ADVICE if warnings else None,
            noisy=is_noisy(found),
            int8=beside,
        )


def _check_options(
    batches: Sequence[int],
    rounds: int | None,
    threads: int,
    place: torch.device,
    *,
    int8: bool,
    source: MaterialSource | None,
) -> None:
    if not batches or min(batches) < 1 or threads < 1 or (rounds is not None and rounds < 1):
        raise InputError(
            f"batches, rounds and threads must be at least 1, got {batches}, {rounds} and {threads}"
        )
    if int8 and place.type != "cpu":
        raise InputError(f"int8 is measured in onnxruntime on the processor, got {place}; leave out one")
    if int8:
        require("onnxruntime")
    elif source is not None:
        raise InputError("calibration and test images are for int8 only; ask for it, or leave them out")


def keep_figures(run_dir: str | Path, figures: BenchFigures) -> str:
    """Put the figures into the run; gives the reason if they cannot be, for a run at work is left alone."""
    try:
        with RunFolder.open(run_dir) as opened:
            opened.history.set_fact(BENCH, dict(figures))
            known = opened.history.get_fact(INT8_FIGURES) or {}
            if figures.get("int8"):
                opened.history.set_fact(INT8_FIGURES, {**known, **figures["int8"]})
    except RunError as error:
        return str(error)
    return ""


def in_turns(
    forwards: Mapping[Key, Forward], rounds: int | None = None, beside: Mapping[Key, Key] | None = None
) -> dict[Key, dict[str, float]]:
    """Milliseconds of each forward, one of each a round, so that a busy moment falls on all alike.

    The median, and as spread half the distance between the quartiles. Where `beside` names another forward,
    also how many times as fast as that this one is: between which limits, if the rounds are enough to tell.
    """
    for forward in forwards.values():
        for _ in range(WARM_UP):
            forward()
    times: dict[Key, list[float]] = {name: [] for name in forwards}
    names, begin = list(forwards), time.perf_counter()
    for number in range(rounds or ROUNDS):
        slow = time.perf_counter() - begin > SECONDS
        if rounds is None and number >= FEWEST_ROUNDS and slow:
            break
        # Each comes first in turn: what ran before leaves its traces in the caches.
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            forwards[name]()
            times[name].append(1000 * (time.perf_counter() - start))
    found = {name: _summary(values) for name, values in times.items()}
    for name, other in (beside or {}).items():
        limits = speed_limits(times[other], times[name])
        if limits is not None and name != other:
            found[name] |= dict(zip(("speed_low", "speed_high"), limits, strict=True))
    return found


def speed_limits(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """Between which limits a speed lies in 95 of 100 such measurements; None where the rounds are too few.

    By ranks of the ratios within each round (the interval of the sign test for a median), so that neither
    an outlier nor a machine that slows down over all rounds counts for much. It takes six rounds at least.

    >>> speed_limits([4.0, 8.0, 4.0, 8.0, 4.0, 40.0], [2.0, 4.0, 2.0, 4.0, 2.0, 4.0])
    (2.0, 10.0)
    """
    ratios = sorted(one / other for one, other in zip(before, after, strict=True))
    rounds, out, chance = len(ratios), 0, 0.0
    while (chance := chance + math.comb(rounds, out) / 2**rounds) <= 0.025:
        out += 1
    return (ratios[out - 1], ratios[rounds - out]) if out else None


def warnings_for(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each network whose FLOPs fell notably while its latency fell by less than half as much."""
    original, lines = networks[ORIGINAL], []
    for name, network in networks.items():
        saved = 1 - network["flops"] / original["flops"]
        slow = []
        for how, timing in network["latency_ms"].items():
            if how.startswith(INT8):
                continue  # that one is held against its own floats
            gained = 1 - timing["median"] / original["latency_ms"][how]["median"]
            if saved > NOTABLE and gained < saved / 2:
                slow.append(f"{_change(gained)} ({how})")
        if slow:
            lines.append(f"{name} has {100 * saved:.0f} % fewer FLOPs, but is {'; '.join(slow)}")
    return lines


def int8_warnings(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line where networks in int8 are no faster than in floats: not every processor gains from it."""
    slow = []
    for name, network in networks.items():
        timings = network["latency_ms"]
        for how, timing in timings.items():
            beside = timings.get(float_kind(how))
            if how.startswith(INT8) and beside and timing["median"] >= beside["median"]:
                change = _change(1 - timing["median"] / beside["median"])
                slow.append(f"{name} is {change.removeprefix('only ')} ({how.split(', ')[-1]})")
    return [f"this processor gains nothing from int8 here: {'; '.join(slow)}"] if slow else []


def is_noisy(networks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether other work on the machine blurred a measurement so much that it should be repeated."""
    timings = [one for network in networks.values() for one in network["latency_ms"].values()]
    return any(one["spread"] > NOISY * one["median"] for one in timings)


def _change(gained: float) -> str:
    return f"only {100 * gained:.0f} % faster" if gained >= 0 else f"{-100 * gained:.0f} % slower"


def _summary(values: list[float]) -> dict[str, float]:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {"median": float(middle), "spread": float(high - low) / 2, "runs": len(values)}


def _recorded(name: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    known: Mapping[str, Any] = facts[ORIGINAL_FIGURES.key if name == ORIGINAL else solution_fact(name).key]
    return known


def _sizes(network: RunNetwork, known: Mapping[str, Any]) -> dict[str, Any]:
    weights = network.model.state_dict().values()
    saved = network.file.stat().st_size if network.file.is_file() else None
    return {
        "params": known.get("params") or sum(one.numel() for one in network.model.parameters()),
        "flops": known["flops"],
        "file_bytes": saved or sum(one.numel() * one.element_size() for one in weights),
        "peak_memory_bytes": peak_memory(network.model, network.example()),
        "latency_ms": {},
    }


def _measurements(
    networks: Mapping[str, RunNetwork], sessions: Sessions, batches: tuple[int, ...], device: torch.device
) -> Iterable[dict[tuple[str, str], Forward]]:
    """What is measured together, one batch after the other: kind and network -> a forward of it."""
    inputs = {batch: torch.randn_like(networks[ORIGINAL].example(batch)) for batch in batches}
    forms = {
        name: deployed(network.model, network.example()).to(device) for name, network in networks.items()
    }
    loaded = {name: network.model.to(device) for name, network in networks.items()}
    for batch, images in inputs.items():
        there = images.to(device)
        # As loaded for one batch only: the tables are wide enough.
        kinds = (("PyTorch", forms), (f"PyTorch {AS_LOADED}", loaded if batch == batches[0] else {}))
        yield {
            (f"{kind}, batch {batch}", name): _torch_forward(form, there)
            for kind, each in kinds
            for name, form in each.items()
        }
    for batch, images in inputs.items() if sessions.plain else ():
        # Both kinds in one measurement: a busy moment then falls on both.
        single = images.float()
        opened_as = ((FLOAT, sessions.plain, images), (INT8, sessions.small, single))
        yield {
            (f"{kind}, batch {batch}", name): _session_forward(session, given)
            for kind, opened, given in opened_as
            for name, session in opened.items()
        }


def _torch_forward(model: nn.Module, images: Tensor) -> Forward:
    def forward() -> None:
        with torch.inference_mode():
            model(images)
        if images.device.type == "cuda":
            torch.cuda.synchronize(images.device)

    return forward


def _session_forward(session: Any, images: Tensor) -> Forward:
    return lambda: run_session(session, images)
