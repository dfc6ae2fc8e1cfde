"""Whether thin networks are really faster: all of them measured in turns, side by side."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deeppruning.amounts import percent
from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import has_onnx, open_session, require, run_session
from deeppruning.errors import GraphError, InputError, RunError, reason_of
from deeppruning.exporting.bench_table import BenchFigures, float_kind
from deeppruning.exporting.files import FOLDER
from deeppruning.exporting.int8 import SUFFIX, Material, MaterialSource, keep_int8, measure, quantize
from deeppruning.exporting.memory import peak_memory
from deeppruning.exporting.networks import AtHand, RunNetwork, RunReader, networks_side_by_side, run_of
from deeppruning.exporting.onnx_file import export_onnx
from deeppruning.latency.runtimes import Conditions, Forward, TorchRuntime
from deeppruning.latency.timing import time_in_turns
from deeppruning.roles import ORIGINAL
from deeppruning.runs import RunFolder
from deeppruning.runs.facts import AS_LOADED, BENCH, Int8Figures
from deeppruning.runs.facts import INT8 as INT8_FIGURES
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.system.device import choose_device, torch_threads

FLOAT, INT8 = "onnxruntime", "onnxruntime int8"
WARM_UP = 3
ROUNDS = 50
FEWEST_ROUNDS = 7
SECONDS = 15.0  # after which a measurement without a number of rounds ends, given its fewest
NOTABLE = 0.2  # the share of FLOPs saved from which a network is expected to be faster
NOISY = 0.2  # a spread beyond this share of the median is caused by other work on the machine
ADVICE = (
    "try a new search with --objective latency (without --round-to, if it was given), or a larger batch: "
    "a small network spends its time on calls, not on arithmetic"
)


def bench_networks(
    source: str | Path | AtHand,
    *,
    batches: Iterable[int] = (1, 32),
    rounds: int | None = None,
    threads: int = 1,
    device: str = "auto",
    int8: bool = False,
    material: MaterialSource | None = None,
    **reading: Any,
) -> BenchFigures:
    """Size, memory and latency of networks, as JSON values: those of a run, or a network and its original.

    `rounds` forward passes of each network in turn; by default up to 50, fewer if they are slow.
    onnxruntime is measured on the CPU, if it is installed. With `int8` all are quantised as well, with the
    images of `material`; without, int8 files that were exported into the run are measured. Further parameters
    are those of `RunReader`.
    """
    reader, run = RunReader(**reading), run_of(source)
    chosen = choose_device("cpu" if int8 and device == "auto" else device)
    bench = _Bench(tuple(dict.fromkeys(batches)), rounds, threads, chosen)
    bench.check(int8=int8, material=material)
    networks = networks_side_by_side(source, reader)
    images = (material or MaterialSource(trust_run=reader.trust_run)).open(run) if int8 else None
    if run is None:
        return bench.figures(networks, {}, images, {})
    files = {name: run / FOLDER / f"{name}{SUFFIX}" for name in networks}
    with RunFolder.open(run, read_only=True) as opened:
        earlier = opened.history.get_fact(INT8_FIGURES) or {}
    exported = {name: file for name, file in files.items() if file.is_file()}
    return bench.figures(networks, exported, images, earlier)


@dataclass(frozen=True)
class _Bench:
    """How networks are measured."""

    batches: tuple[int, ...]
    rounds: int | None
    threads: int
    device: torch.device

    def check(self, *, int8: bool, material: MaterialSource | None) -> None:
        """Refuse options that do not work together, before any work."""
        counts = (*self.batches, self.threads, 1 if self.rounds is None else self.rounds)
        if not self.batches or min(counts) < 1:
            raise InputError(
                f"batches, rounds and threads must be at least 1, got {self.batches}, {self.rounds} and "
                f"{self.threads}"
            )
        if int8 and self.device.type != "cpu":
            raise InputError(f"int8 is measured in onnxruntime on the CPU, got {self.device}; leave out one")
        if int8:
            require("onnxruntime")
        elif material is not None:
            raise InputError("calibration and test images are for int8 only; ask for it, or leave them out")

    def figures(
        self,
        networks: Mapping[str, RunNetwork],
        exported: Mapping[str, Path],
        images: Material | None,
        earlier: Mapping[str, Int8Figures],
    ) -> BenchFigures:
        """Sizes and latencies; `exported` are int8 files, `earlier` what was measured of them."""
        sizes = {name: _sizes_measured(network) for name, network in networks.items()}
        # A candidate that holds several roles is one network, and has one speed.
        first: dict[Any, str] = {}
        twin = {
            name: first.setdefault(name if each.candidate is None else each.candidate, name)
            for name, each in networks.items()
        }
        different = {name: networks[name] for name in first.values()}
        files = {twin[name]: file for name, file in exported.items()}
        with torch_threads(self.threads):
            sessions = _Sessions()
            if self.device.type == "cpu" and has_onnx():
                sessions = _open_sessions(different, self.threads, files, images)
            if images is not None and not sessions.small:
                raise GraphError("; ".join(sessions.troubles) or "no network can be exported to ONNX")
            for forwards in self._measurements(different, sessions):
                timings = self._timings(forwards)
                for name in networks:
                    for kind, measured in forwards:
                        if twin[name] == measured:
                            sizes[name]["latency_ms"][kind] = timings[kind, measured]
        new = {name: sessions.figures[twin[name]] for name in networks if twin[name] in sessions.figures}
        int8 = {**earlier, **new}
        warnings = [*warnings_for(sizes), *int8_warnings(sizes), *sessions.troubles]
        return BenchFigures(
            threads=self.threads,
            device=str(self.device),
            onnxruntime=any(kind.startswith(FLOAT) for kind in sizes[ORIGINAL]["latency_ms"]),
            networks=sizes,
            warnings=warnings,
            advice=ADVICE if warnings else None,
            noisy=is_noisy(sizes),
            int8={name: int8[name] for name in networks if name in int8 and twin[name] in sessions.small},
        )

    def _measurements(
        self, networks: Mapping[str, RunNetwork], sessions: "_Sessions"
    ) -> Iterator[dict[tuple[str, str], Forward]]:
        """What is measured together, one batch size after the other: kind and network -> a forward of it."""
        example = torch.randn_like(networks[ORIGINAL].example())
        forms = {name: deployed(network.model, network.example()) for name, network in networks.items()}
        loaded = {name: network.model for name, network in networks.items()}
        for batch in self.batches:
            runtime = TorchRuntime(Conditions(batch=batch, device=str(self.device)))
            # As loaded for one batch size only: the tables are wide enough.
            kinds = {"PyTorch": forms, f"PyTorch {AS_LOADED}": loaded if batch == self.batches[0] else {}}
            yield {
                (f"{kind}, batch {batch}", name): runtime.as_loaded(form, example)
                for kind, each in kinds.items()
                for name, form in each.items()
            }
        for batch in self.batches if sessions.plain else ():
            images = example.expand(batch, *example.shape[1:]).contiguous()
            # Both kinds in one measurement: a busy moment then falls on both.
            opened = ((FLOAT, sessions.plain, images), (INT8, sessions.small, images.float()))
            yield {
                (f"{kind}, batch {batch}", name): partial(run_session, session, inputs)
                for kind, each_session, inputs in opened
                for name, session in each_session.items()
            }

    def _timings(
        self, forwards: Mapping[tuple[str, str], Forward]
    ) -> dict[tuple[str, str], dict[str, float]]:
        """Milliseconds of each forward, and how many times as fast as the original it is.

        The median, and as spread half the distance between the quartiles.
        """
        keys, calls = list(forwards), list(forwards.values())
        for call in calls:
            for _ in range(WARM_UP):
                call()
        rounds, fewest = (self.rounds, self.rounds) if self.rounds else (ROUNDS, FEWEST_ROUNDS)
        on_cpu = self.device.type == "cpu"
        times = time_in_turns(calls, rounds, fewest=fewest, seconds=SECONDS, on_cpu=on_cpu)
        milliseconds = {
            key: [1000 * seconds for seconds in each] for key, each in zip(keys, times, strict=True)
        }
        timings = {key: summary(each) for key, each in milliseconds.items()}
        for key in keys:
            original = float_kind(key[0]), ORIGINAL
            limits = None if key == original else speed_limits(milliseconds[original], milliseconds[key])
            if limits is not None:
                timings[key] |= dict(zip(("speed_low", "speed_high"), limits, strict=True))
        return timings


def keep_figures(run_dir: str | Path, figures: BenchFigures) -> str:
    """Record the figures in the run; returns the reason if that is not possible, as for a run in progress."""
    try:
        with RunFolder.open(run_dir) as run:
            run.history.set_fact(BENCH, dict(figures))
    except RunError as error:
        return str(error)
    return keep_int8(run_dir, figures["int8"]) if figures.get("int8") else ""


def summary(times: Sequence[float]) -> dict[str, float]:
    """Median and spread, half the distance between the quartiles."""
    low, middle, high = np.percentile(times, (25, 50, 75))
    return {"median": float(middle), "spread": float(high - low) / 2, "runs": len(times)}


def speed_limits(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % confidence interval of a speed-up; None if the rounds are too few, below six.

    By ranks of the ratios within each round (the interval of the sign test for a median), so that neither
    an outlier nor a machine that slows down over all rounds counts for much.

    >>> speed_limits([4.0, 8.0, 4.0, 8.0, 4.0, 40.0], [2.0, 4.0, 2.0, 4.0, 2.0, 4.0])
    (2.0, 10.0)
    """
    ratios = sorted(old / new for old, new in zip(before, after, strict=True))
    rounds, out, chance = len(ratios), 0, 0.0
    while (chance := chance + math.comb(rounds, out) / 2**rounds) <= 0.025:
        out += 1
    return (ratios[out - 1], ratios[rounds - out]) if out else None


def warnings_for(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each network with notably fewer FLOPs but less than half of that saved in latency."""
    original, lines = networks[ORIGINAL], []
    for name, network in networks.items():
        saved = 1 - network["flops"] / original["flops"]
        slow = []
        for kind, timing in network["latency_ms"].items():
            if kind.startswith(INT8):
                continue  # that one is compared with its own float file
            gained = 1 - timing["median"] / original["latency_ms"][kind]["median"]
            if saved > NOTABLE and gained < saved / 2:
                slow.append(f"{_speed_change(gained)} ({kind})")
        if slow:
            lines.append(f"{name} has {percent(saved, 0)} fewer FLOPs, but is {'; '.join(slow)}")
    return lines


def int8_warnings(networks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line where networks in int8 are no faster than in floats: not every CPU gains from it."""
    slow = []
    for name, network in networks.items():
        timings = network["latency_ms"]
        for kind, timing in timings.items():
            plain = timings.get(float_kind(kind))
            if kind.startswith(INT8) and plain and timing["median"] >= plain["median"]:
                change = _speed_change(1 - timing["median"] / plain["median"])
                slow.append(f"{name} is {change.removeprefix('only ')} ({kind.split(', ')[-1]})")
    return [f"this CPU gains nothing from int8 here: {'; '.join(slow)}"] if slow else []


def is_noisy(networks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether other work on the machine disturbed a measurement so much that it should be repeated."""
    timings = [timing for network in networks.values() for timing in network["latency_ms"].values()]
    return any(timing["spread"] > NOISY * timing["median"] for timing in timings)


def _speed_change(gained: float) -> str:
    """A speed-up in words: only so much faster, or slower."""
    return f"only {percent(gained, 0)} faster" if gained >= 0 else f"{percent(-gained, 0)} slower"


def _sizes_measured(network: RunNetwork) -> dict[str, Any]:
    """Parameters, FLOPs, file and peak memory of a network."""
    weights = network.model.state_dict().values()
    saved = network.file.stat().st_size if network.file.is_file() else None
    return {
        "params": network.params or sum(weight.numel() for weight in network.model.parameters()),
        "flops": network.count_flops(),
        "file_bytes": saved or sum(weight.numel() * weight.element_size() for weight in weights),
        "peak_memory_bytes": peak_memory(network.model, network.example()),
        "latency_ms": {},
    }


@dataclass
class _Sessions:
    """onnxruntime sessions by the name of the network: in floats, and in int8 with what that costs."""

    plain: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Int8Figures] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def _open_sessions(
    networks: Mapping[str, RunNetwork], threads: int, exported: Mapping[str, Path], images: Material | None
) -> _Sessions:
    """A session for every network; none at all if one of them cannot be exported.

    With images all are quantised; without, int8 files that were `exported` are opened.
    """
    sessions = _Sessions()
    with scratch_folder() as folder:
        files = {name: folder / f"{name}.onnx" for name in networks}
        for name, network in networks.items():
            # Only timed here, so rounding of large outputs is no reason to refuse; `export` checks that.
            try:
                export_onnx(network.model, network.example(), files[name], tolerance=math.inf)
            except GraphError:
                return _Sessions()
            sessions.plain[name] = open_session(files[name], threads=threads)
        for name in networks if images is not None else exported:
            small = exported[name] if images is None else folder / f"{name}{SUFFIX}"
            try:
                if images is not None:
                    sessions.figures[name] = _quantize_for_bench(files[name], small, networks[name], images)
                sessions.small[name] = open_session(small, threads=threads)
            except GraphError as error:
                sessions.troubles.append(f"{name} was not measured in int8: {error}")
            except Exception as error:  # a damaged file; onnxruntime has errors of its own
                if images is not None:
                    raise
                sessions.troubles.append(f"{small} cannot be run ({reason_of(error)}); export it again")
    return sessions


def _quantize_for_bench(plain: Path, small: Path, network: RunNetwork, images: Material) -> Int8Figures:
    """The int8 file of a network, with the figures that its use costs."""
    images = images.normalized(network.recorded_normalization())
    quantize(plain, small, images.batches(pixels=False))
    return measure(plain, small, images, pixels=False)
