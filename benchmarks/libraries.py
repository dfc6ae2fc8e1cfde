"""Networks of timm and torchvision by name: built, cut to half of the filters, saved and loaded without code.

    python benchmarks/libraries.py --markdown docs/own-model.md

Prints a table with the versions it was made with; with --markdown, it replaces the one in this file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import tempfile
import time
from pathlib import Path

import torch

import deeppruning as dp
from deeppruning.errors import DeepPruningError

NAMES = (
    *("timm:resnet18", "timm:mobilenetv3_small_100", "timm:efficientnet_b0", "timm:convnext_atto"),
    *("torchvision:resnet50", "torchvision:mobilenet_v3_small", "torchvision:squeezenet1_1"),
    "torchvision:googlenet",
)
BEGIN, END = "<!-- libraries -->", "<!-- /libraries -->"
SIDE = 64


def row(name: str) -> str:
    """One network as a row of the table: its parameters before and after, or why there are none."""
    torch.manual_seed(0)
    example = torch.rand(1, 3, SIDE, SIDE)
    started = time.process_time()
    try:
        network = dp.create_model(name, num_classes=10, image_size=SIDE).eval()
        graph = dp.ChannelGraph(network, example, round_to=1)
        genome = graph.full_genome()
        genome[1::2] = False
        genome = graph.repair(genome)
        thin = graph.prune(genome).eval()
        with tempfile.TemporaryDirectory() as folder:
            path = dp.save(thin, Path(folder) / "thin.safetensors", graph, genome)
            again = dp.load(path)
        with torch.no_grad():
            same = torch.equal(again(example), thin(example))
    except DeepPruningError as error:
        return f"| `{name}` | {str(error).splitlines()[0]} | - | - | - |"
    whole, kept = graph.params(graph.full_genome()), graph.params(genome)
    print(f"{name}: {time.process_time() - started:.0f} s", flush=True)
    proven = "yes" if graph.verify(genome).holds else "no"
    return f"| `{name}` | {whole:,} | {kept:,} | {proven} | {'yes' if same else 'no'} |"


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # beside a torch for CPUs alone they are missing; no classifier uses them
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("timm", "torchvision", "torch")
    )
    lines = [
        f"Made by `python benchmarks/libraries.py` with {versions}; every second filter is removed:",
        "",
        "| name | parameters | thin | equals masking | `dp.load` gives the same outputs |",
        "|---|---:|---:|---|---|",
        *(row(name) for name in NAMES),
    ]
    text = "\n".join(lines)
    print(text)
    if options.markdown is not None:
        before, _, rest = options.markdown.read_text().partition(BEGIN)
        options.markdown.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
