"""MobileNet v2 and ResNet50 with real weights and photographs of 224 pixels: cost and worth of a search.

The folder has `calib/` and `val/` (class folders of photographs of 224 pixels), `mobilenet_v2.pth` and
`resnet50.pth`. The search and every refit see photographs of `calib` without their labels; `val` is only
for the test. Nothing is trained.

    python benchmarks/imagenet.py --folder DIR originals
    python benchmarks/imagenet.py --folder DIR search resnet50 --photographs 256 --out front.json
    python benchmarks/imagenet.py --folder DIR test resnet50 front.json --at 0.85 0.70 0.58
    python benchmarks/imagenet.py --folder DIR latency resnet50 front.json --at 0.85 0.70 0.58
    python benchmarks/imagenet.py simulate front.json --workers 8 64 --gpu-images 2500
    python benchmarks/imagenet.py table --markdown docs/results/imagenet.md

Every result is also added to a file of JSON lines (`--results`), of which `table` makes the tables. A pass
is the processor time of one forward pass of the original over 256 photographs, measured in the same
process as the search, with the same threads.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from imagenet_tables import add_row, read_rows, write_tables

METHODS = ("search", "l1 + refit", "l1", "depth + refit")
HERE = Path(__file__).resolve().parent.parent / "src"
PASS = 256  # photographs


def originals(options: argparse.Namespace) -> None:
    """Top-1 of the originals."""
    from imagenet_networks import NETWORKS, Photographs, load_network
    from imagenet_peers import answers_right, packed

    val = Photographs.read(options.folder / "val").spread(options.images)
    for name in options.networks or NETWORKS:
        right = answers_right(load_network(name, options.folder), val, name)
        print(f"{name}: {right.mean():.2%} of {len(right):,}", flush=True)
        row = {"kind": "original", "network": name, "images": len(right), "right": packed(right)}
        add_row(options.results, {**row, "top1": float(right.mean())})


def search(options: argparse.Namespace) -> None:
    """A search in a process of its own, which measures itself; with the code of another version, if given."""
    from deeppruning.system.allocator import ENVIRONMENT

    command = [sys.executable, __file__, *sys.argv[1:], "--apart"]
    threads = str(options.threads)
    environment = {
        **ENVIRONMENT,  # as in a run from the command line
        **os.environ,
        "PYTHONPATH": str(options.source.resolve()),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
    subprocess.run(command, env=environment, check=True)
    front = json.loads(options.out.read_text())
    kept = ("network", "name", "photographs", "points", "candidates_seen", *MEASURED)
    add_row(options.results, {"kind": "search", **{key: front[key] for key in kept}})
    print(json.dumps({key: front[key] for key in kept}, indent=1))


MEASURED = (
    "passes", "processor_seconds", "pass_seconds", "wall_seconds", "peak_mb", "worker_peak_mb", "threads",
    "workers", "stages",
)  # fmt: skip


def used() -> float:
    """Processor seconds of this process and of its workers that have ended."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def search_apart(options: argparse.Namespace) -> None:
    """The search itself, measured; its candidates are written as JSON."""
    import torch
    from imagenet_networks import Photographs, load_network

    import deeppruning as dp

    torch.set_num_threads(options.threads)
    model = load_network(options.network, options.folder)
    calib = Photographs.read(options.folder / "calib")
    inputs = calib.spread(options.photographs).tensor(options.network)
    one_pass = seconds_of_pass(model, calib.spread(PASS).tensor(options.network))
    before, start = used(), time.perf_counter()
    timeline: list[tuple[str, float, float]] = []

    def watch(event: Any) -> None:
        name = type(event).__name__
        name = f"{name} {event.name}" if name == "Stage" else name
        timeline.append((name, time.perf_counter() - start, used() - before))
        print(f"{timeline[-1][1]:8.0f} s  {name}", flush=True)

    settings = dp.SearchConfig(threads=options.threads, **dict(map(parsed, options.set)))
    front = dp.search(model, inputs, search=settings, workers=options.workers, observer=watch, progress=False)
    wall, processor = time.perf_counter() - start, used() - before
    peaks = [
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    one_pass = (one_pass + seconds_of_pass(model, calib.spread(PASS).tensor(options.network))) / 2
    whole = front.original.flops
    candidates = [
        {
            "genome": "".join("01"[bit] for bit in each.genome.astype(int)),
            "share": each.flops / whole,
            "error": each.evaluation.error,
            "score": each.evaluation.judged,
            "generation": each.generation,
            "seconds": each.evaluation.seconds,
        }
        for each in front.candidates
        if each.evaluation is not None and each.evaluation.error is not None
    ]
    result = {
        "network": options.network,
        "name": options.name,
        "photographs": len(inputs),
        "settings": settings.to_table(),
        "flops": whole,
        "passes": processor / one_pass,
        "pass_seconds": one_pass,
        "processor_seconds": processor,
        "wall_seconds": wall,
        "peak_mb": peaks[0],
        "worker_peak_mb": peaks[1],
        "threads": options.threads,
        "workers": options.workers,
        "stages": stages(timeline, processor),
        "points": points(candidates),
        "candidates_seen": len(candidates),
        "timeline": timeline,
        "candidates": candidates,
    }
    options.out.write_text(json.dumps(result))


def parsed(setting: str) -> tuple[str, Any]:
    """`name=value`, the value as JSON or as text."""
    name, _, value = setting.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def seconds_of_pass(model: Any, inputs: Any) -> float:
    """Processor seconds of one forward pass over these inputs, in batches as a user would run them."""
    import torch
    from imagenet_networks import BATCH

    with torch.inference_mode():
        model(inputs[:BATCH])
        start = time.process_time()
        for start_row in range(0, len(inputs), BATCH):
            model(inputs[start_row : start_row + BATCH])
    return time.process_time() - start


def stages(timeline: list[tuple[str, float, float]], total: float) -> dict[str, float]:
    """Processor seconds that passed until each kind of event, from the event before it."""
    spent: dict[str, float] = {}
    last = 0.0
    for name, _, processor in timeline:
        spent[name] = spent.get(name, 0.0) + processor - last
        last = processor
    spent["the rest"] = total - last
    return spent


def points(candidates: list[dict[str, Any]]) -> int:
    """Candidates between 30 and 90 % of the FLOPs with none that is cheaper and better."""
    best, count = float("inf"), 0
    for each in sorted(candidates, key=lambda one: (one["share"], one["score"])):
        if each["score"] < best:
            best = each["score"]
            count += 0.3 <= each["share"] <= 0.9
    return count


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("data/imagenet"), help="[data/imagenet]")
    parser.add_argument("--results", type=Path, default=Path("imagenet.jsonl"), help="[imagenet.jsonl]")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("originals", help="top-1 of the originals")
    one.add_argument("networks", nargs="*")
    one.add_argument("--images", type=int, default=2000, help="of val [2000]")
    one = commands.add_parser("search", help="a search, with its cost")
    one.add_argument("network")
    one.add_argument("--photographs", type=int, default=PASS, help="of calib [256]")
    one.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="options of SearchConfig")
    one.add_argument("--out", type=Path, default=Path("front.json"), help="[front.json]")
    one.add_argument("--name", default="search", help="how the tables call it [search]")
    one.add_argument("--source", type=Path, default=HERE, help="the src folder of another version")
    one.add_argument("--threads", type=int, default=1, help="[1]")
    one.add_argument("--workers", type=int, default=1, help="[1]")
    one.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    for name, text in (("test", "top-1 of the front and of its peers"), ("latency", "in onnxruntime")):
        one = commands.add_parser(name, help=text)
        one.add_argument("network")
        one.add_argument("front", type=Path)
        one.add_argument("--at", type=float, nargs="+", default=[0.85, 0.70, 0.58], help="of the FLOPs")
        one.add_argument("--only", nargs="+", choices=METHODS, default=METHODS, help="[all]")
        one.add_argument("--photographs", type=int, help="of calib to refit on [as in the search]")
        one.add_argument("--memory", type=float, default=8.0, help="of a refit, in GB [8]")
        one.add_argument("--images", type=int, default=2000, help="of val [2000]")
        one.add_argument("--threads", type=int, nargs="+", default=[1, 2] if name == "latency" else [2])
        one.add_argument("--turns", type=int, default=20, help="of the measurement of latency [20]")
        one.add_argument("--orders", type=Path, help="file that keeps the order of blocks [beside the front]")
    one = commands.add_parser("simulate", help="the same search on more workers and on a GPU")
    one.add_argument("front", type=Path)
    one.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    one.add_argument("--gpu-images", type=float, default=2500.0, help="forward passes a second [2500]")
    one = commands.add_parser("table", help="the tables of all results")
    one.add_argument("--markdown", type=Path, help="page to write them into, between its two marks")
    return parser.parse_args()


def main() -> None:
    """Run one command."""
    options = parse()
    if options.command == "originals":
        originals(options)
    elif options.command == "search":
        search_apart(options) if options.apart else search(options)
    elif options.command in ("test", "latency"):
        from imagenet_peers import latency, test

        (test if options.command == "test" else latency)(options)
    elif options.command == "simulate":
        from imagenet_simulation import simulate

        simulate(options)
    else:
        write_tables(read_rows(options.results), options.markdown)


if __name__ == "__main__":
    main()
