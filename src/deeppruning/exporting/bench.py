"""Whether the thin networks of a run are really faster: all of them measured in turns, side by side."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.errors import GraphError, InputError, RunError
from deeppruning.exporting.bench_table import BenchFigures
from deeppruning.exporting.memory import peak_memory
from deeppruning.exporting.networks import RunNetwork, failure_of, read_network
from deeppruning.exporting.onnx_file import deployed, export_onnx, has_onnx, open_session, run_session
from deeppruning.roles import ORIGINAL, ROLES, TARGET
from deeppruning.runs.facts import BENCH, ORIGINAL_FIGURES, solution_fact
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.device import choose_device
from deeppruning.system.threads import torch_threads

WARM_UP = 3
ROUNDS = 50
FEWEST_ROUNDS = 7
SECONDS = 15.0  # after which a measurement of unstated length ends, given its fewest rounds
NOTABLE = 0.2  # the share of FLOPs saved from which a network is expected to be faster
NOISY = 0.2  # a spread beyond this share of the median says more of the machine than of the network
ADVICE = (
    "try `--round-to 8` in a new search (widths that vector units fill), `--objective latency`, "
    "or a larger batch: a small network spends its time on calls, not on arithmetic"
)

Forward = Callable[[], Any]


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
) -> BenchFigures:
    """Size, memory and latency of the original, the picks and the target, as JSON values.

    `rounds` forward passes of each network in turn; by default up to 50, fewer where they are slow.
    onnxruntime is measured on the processor, where it is installed. `model`, `example_input`,
    `spec` and `trust_run` as in `read_network`.
    """
    batches = tuple(batches)
    if not batches or min(batches) < 1 or threads < 1 or (rounds is not None and rounds < 1):
        raise InputError(
            f"batches, rounds and threads must be at least 1, got {batches}, {rounds} and {threads}"
        )
    place = choose_device(device)
    with RunFolder.open(run_dir, read_only=True) as run:
        roles = (*ROLES, TARGET) if run.solution(TARGET).is_file() else ROLES
    names = (ORIGINAL, *(role for role in roles if not failure_of(run_dir, role)))
    networks = {
        name: read_network(
            run_dir, name, model=model, example_input=example_input, spec=spec, trust_run=trust_run
        )
        for name in names
    }
    with RunFolder.open(run_dir, read_only=True) as run:
        facts = run.history.facts()
    found = {name: _sizes(network, facts) for name, network in networks.items()}
    # A candidate that holds several roles is one network, and has one speed.
    candidates = {name: facts.get(solution_fact(name).key, {}).get("id", name) for name in networks}
    twin = {name: next(one for one in networks if candidates[one] == candidates[name]) for name in networks}
    different = {name: networks[name] for name in twin.values()}
    with torch_threads(threads):
        for how, forwards in _measurements(different, batches, threads, place):
            timings = in_turns(forwards, rounds)
            for name in networks:
                found[name]["latency_ms"][how] = timings[twin[name]]
    warnings = warnings_for(found)
    return BenchFigures(
        threads=threads,
        device=str(place),
        onnxruntime=any(how.startswith("onnxruntime") for how in found[ORIGINAL]["latency_ms"]),
        networks=found,
        warnings=warnings,
        advice=ADVICE if warnings else None,
        noisy=is_noisy(found),
    )


def keep_figures(run_dir: str | Path, figures: BenchFigures) -> str:
    """Put the figures into the run; gives the reason if they cannot be, for a run at work is left alone."""
    try:
        with RunFolder.open(run_dir) as opened:
            opened.history.set_fact(BENCH, dict(figures))
    except RunError as error:
        return str(error)
    return ""


def in_turns(forwards: Mapping[str, Forward], rounds: int | None = None) -> dict[str, dict[str, float]]:
    """Milliseconds of each forward, one of each a round, so that a busy moment falls on all alike.

    The median, and as spread half the distance between the quartiles.
    """
    for forward in forwards.values():
        for _ in range(WARM_UP):
            forward()
    times: dict[str, list[float]] = {name: [] for name in forwards}
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
    return {name: _summary(values) for name, values in times.items()}


def warnings_for(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each network whose FLOPs fell notably while its latency fell by less than half as much."""
    original, lines = networks[ORIGINAL], []
    for name, network in networks.items():
        saved = 1 - network["flops"] / original["flops"]
        slow = []
        for how, timing in network["latency_ms"].items():
            gained = 1 - timing["median"] / original["latency_ms"][how]["median"]
            if saved > NOTABLE and gained < saved / 2:
                slow.append(f"{_change(gained)} ({how})")
        if slow:
            lines.append(f"{name} has {100 * saved:.0f} % fewer FLOPs, but is {'; '.join(slow)}")
    return lines


def is_noisy(networks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether other work on the machine blurred a measurement so much that it should be repeated."""
    timings = [one for network in networks.values() for one in network["latency_ms"].values()]
    return any(one["spread"] > NOISY * one["median"] for one in timings)


def _change(gained: float) -> str:
    return f"only {100 * gained:.0f} % faster" if gained >= 0 else f"{-100 * gained:.0f} % slower"


def _summary(values: list[float]) -> dict[str, float]:
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {"median": float(middle), "spread": float(high - low) / 2, "runs": len(values)}


def _sizes(network: RunNetwork, facts: Mapping[str, Any]) -> dict[str, Any]:
    known = facts[ORIGINAL_FIGURES.key if network.name == ORIGINAL else solution_fact(network.name).key]
    return {
        "params": known["params"],
        "flops": known["flops"],
        "file_bytes": network.file.stat().st_size,
        "peak_memory_bytes": peak_memory(network.model, network.example()),
        "latency_ms": {},
    }


def _measurements(
    networks: Mapping[str, RunNetwork], batches: tuple[int, ...], threads: int, device: torch.device
) -> Iterable[tuple[str, dict[str, Forward]]]:
    """What is measured, one kind after the other: a forward of every network under each name."""
    inputs = {batch: torch.randn_like(networks[ORIGINAL].example(batch)) for batch in batches}
    sessions = _sessions(networks, threads) if device.type == "cpu" and has_onnx() else {}
    forms = {
        name: deployed(network.model, network.example()).to(device) for name, network in networks.items()
    }
    for batch, images in inputs.items():
        there = images.to(device)
        yield (
            f"PyTorch, batch {batch}",
            {name: _torch_forward(form, there) for name, form in forms.items()},
        )
    for batch, images in inputs.items() if sessions else ():
        yield (
            f"onnxruntime, batch {batch}",
            {name: _session_forward(session, images) for name, session in sessions.items()},
        )


def _torch_forward(model: nn.Module, images: Tensor) -> Forward:
    def forward() -> None:
        with torch.inference_mode():
            model(images)
        if images.device.type == "cuda":
            torch.cuda.synchronize(images.device)

    return forward


def _session_forward(session: Any, images: Tensor) -> Forward:
    return lambda: run_session(session, images)


def _sessions(networks: Mapping[str, RunNetwork], threads: int) -> dict[str, Any]:
    """A session for every network; none at all if one of them cannot be exported."""
    sessions: dict[str, Any] = {}
    with scratch_folder() as folder:
        for name, network in networks.items():
            file = folder / f"{name}.onnx"
            # Only timed here, so rounding of large outputs is no reason to refuse; `export` judges that.
            try:
                export_onnx(network.model, network.example(), file, tolerance=math.inf)
            except GraphError:
                return {}
            sessions[name] = open_session(file, threads=threads)
    return sessions
