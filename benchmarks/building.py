"""What a channel graph costs to build: in runs of the network itself, and against another version.

    python benchmarks/building.py
    python benchmarks/building.py --against ../older/src --torchvision

Networks and versions are taken in turn, each in a process of its own on one thread; figures are processor
time, and the median of several builds. A run is one forward pass in single precision without gradients.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from coverage_networks import Network, import_libraries
from torch import Tensor, nn

ZOO = ("resnet56", "densenet100", "mobilenet_v2")
TORCHVISION = ("resnet50", "densenet121", "convnext_tiny")
HERE = Path(__file__).resolve().parent.parent / "src"


def make(name: str, *, torchvision: bool) -> tuple[nn.Module, Tensor]:
    """A network and an image for it."""
    torch.manual_seed(0)
    if torchvision:
        import_libraries()
    network = Network("torchvision", name, 224) if torchvision else Network("zoo", name, 32)
    return network.make(), network.example()


def measure(name: str, *, torchvision: bool) -> dict[str, Any]:
    """Seconds of one build and of one forward pass."""
    from deeppruning.graph import ChannelGraph

    torch.set_num_threads(1)
    model, image = make(name, torchvision=torchvision)
    with torch.no_grad():
        model.eval()(image)
        start = time.process_time()
        for _ in range(3):
            model(image)
        run = (time.process_time() - start) / 3
    start = time.process_time()
    graph = ChannelGraph(model, image)
    return {"build": time.process_time() - start, "run": run, "genes": graph.num_genes}


def apart(name: str, source: Path, *, torchvision: bool) -> dict[str, Any]:
    """The same in a process that uses the code under `source`."""
    command = [sys.executable, __file__, "--one", name, *(["--torchvision"] if torchvision else [])]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure all networks and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, help="the src folder of another version")
    parser.add_argument("--torchvision", action="store_true", help="torchvision's networks at 224 pixels")
    parser.add_argument("--repeat", type=int, default=3, help="builds of each network")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, torchvision=options.torchvision)))
        return
    sources = [HERE, *([options.against.resolve()] if options.against else [])]
    print(f"torch {torch.__version__}, one thread, median of {options.repeat} builds\n")
    heads = ("network", "one run", "build", "in runs", "other version", "ratio", "genes")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name in TORCHVISION if options.torchvision else ZOO:
        found = [
            [apart(name, source, torchvision=options.torchvision) for source in sources]
            for _ in range(options.repeat)
        ]
        run = statistics.median(turn[0]["run"] for turn in found)
        build, *other = [statistics.median(turn[i]["build"] for turn in found) for i in range(len(sources))]
        cells = [name, f"{1e3 * run:.0f} ms", f"{build:.2f} s", f"{build / run:.0f}"]
        cells += [f"{other[0]:.2f} s", f"{other[0] / build:.1f}x"] if other else ["", ""]
        cells.append(" / ".join(f"{row['genes']:,}" for row in found[0]))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
