"""The networks of a search beside those of other methods at the same FLOPs: top-1 and latency."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from imagenet_networks import BATCH, SIZE, Photographs, load_network
from imagenet_tables import add_row, read_rows
from numpy.typing import NDArray
from torch import nn

import deeppruning as dp
from deeppruning.deploying.onnx_graph import open_session, run_session
from deeppruning.exporting import export_onnx
from deeppruning.latency.timing import time_in_turns
from deeppruning.searching.importance import Evidence
from deeppruning.searching.importance.orders import genome_by
from deeppruning.searching.unlabelled import drift

SEARCH, L1_REFIT, L1, DEPTH = "search", "l1 + refit", "l1", "depth + refit"
METHODS = (SEARCH, L1_REFIT, L1, DEPTH)
LOOKED_AT = 64  # photographs to refit on, and as many to judge by, when blocks are removed one by one
SECONDS = 600.0  # of one measurement of latency at most

Bits = NDArray[np.bool_]


class Peers:
    """The genome of every method at a share of the FLOPs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name: str = options.network
        self.front = json.loads(options.front.read_text())
        if self.front["network"] != self.name:
            raise SystemExit(f"{options.front} is of {self.front['network']}")
        self.model = load_network(self.name, options.folder)
        # Widths as a search rounds them; its own genomes are rounded already.
        rounded = dp.ChannelGraph(self.model, torch.zeros(1, 3, SIZE, SIZE), depth=True, round_to=None)
        self.graph, self.rounded = rounded.rounded(1), rounded
        self.whole = self.graph.flops(self.graph.full_genome())
        self.calib = Photographs.read(options.folder / "calib")
        self.memory: float = options.memory
        self.photographs: int = options.photographs or self.front["photographs"]
        self.orders: Path = options.orders or options.front.with_suffix(".blocks.json")

    def genome(self, method: str, share: float) -> Bits:
        """The method's network within this share of the FLOPs, or the nearest it has."""
        if method == SEARCH:
            within = [each for each in self.front["candidates"] if each["share"] <= share]
            best = min(within, key=lambda each: each["score"])
            return np.array([bit == "1" for bit in best["genome"]])
        if method == DEPTH:
            return self._without_blocks(share)
        evidence = Evidence(self.rounded, self.rounded.prune(self.rounded.full_genome()))
        return np.asarray(genome_by("l1", evidence, flops=share * self.whole))

    def share(self, genome: Bits) -> float:
        """Of the original's FLOPs."""
        return float(self.graph.flops(genome) / self.whole)

    def network(self, method: str, genome: Bits) -> nn.Module:
        """Cut and, except for plain l1, refitted."""
        if method == L1:
            return self.graph.prune(genome).eval()
        inputs = self.calib.spread(self.photographs).tensor(self.name)
        return dp.refit(self.graph, genome, inputs, memory=self.memory).eval()

    def _without_blocks(self, share: float) -> Bits:
        """Without whole branches, those first that alone are missed least."""
        genome = self.graph.full_genome()
        for number in self._block_order():
            if self.share(genome) <= share:
                break
            genome[list(self.graph.groups[number].genes)] = False
        return np.asarray(self.graph.repair(genome))

    def _block_order(self) -> list[int]:
        """Numbers of groups that may go as a whole, by the drift without each of them alone, refitted."""
        if self.orders.exists():
            return [int(number) for number in json.loads(self.orders.read_text())]
        fit = self.calib.spread(2 * LOOKED_AT).tensor(self.name)
        fit, judged = fit[::2], fit[1::2]
        expected = outputs(self.model, judged)
        losses: dict[int, float] = {}
        for number, group in enumerate(self.graph.groups):
            if group.removable:
                genome = self.graph.full_genome()
                genome[list(group.genes)] = False
                thin = dp.refit(self.graph, genome, fit)
                losses[number] = drift(expected, outputs(thin, judged)).judged
                print(f"without {', '.join(group.branch)[:60]}: {losses[number]:.4f}", flush=True)
        order = sorted(losses, key=lambda number: losses[number])
        self.orders.write_text(json.dumps(order))
        return order


def outputs(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Of the network, some inputs at a time."""
    with torch.inference_mode():
        return torch.cat([model(part) for part in inputs.split(BATCH)])


def answers_right(model: nn.Module, photographs: Photographs, name: str) -> Bits:
    """Which photographs get their class as the first answer."""
    model = model.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        found = [
            model(inputs.contiguous(memory_format=torch.channels_last)).argmax(1) == labels
            for inputs, labels in photographs.batches(name)
        ]
    return np.asarray(torch.cat(found).numpy())


def packed(right: Bits) -> str:
    """Answers as hexadecimal digits, so that any two networks can be compared image by image later."""
    return np.packbits(right).tobytes().hex()


def unpacked(digits: str, count: int) -> Bits:
    """What `packed` wrote."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(digits), np.uint8), count=count).astype(bool)


def test(options: argparse.Namespace) -> None:
    """Top-1 of every method at every share; the difference from the original image by image."""
    torch.set_num_threads(options.threads[0])
    peers = Peers(options)
    val = Photographs.read(options.folder / "val").spread(options.images)
    before = original_answers(options, peers, val)
    for share in options.at:
        for method in options.only:
            genome = peers.genome(method, share)
            start = time.process_time()
            thin = peers.network(method, genome)
            refitted = time.process_time() - start
            right = answers_right(thin, val, peers.name)
            gap = right.astype(float) - before
            row = {
                "kind": "test",
                "network": peers.name,
                "name": peers.front["name"] if method == SEARCH else method,
                "method": method,
                "at": share,
                "share": peers.share(genome),
                "images": len(right),
                "photographs": peers.photographs,
                "top1": float(right.mean()),
                "gap": float(gap.mean()),
                "error": float(gap.std(ddof=1) / len(gap) ** 0.5),
                "refit_seconds": refitted,
                "right": packed(right),
            }
            add_row(options.results, row)
            print(
                f"{row['name']:>14} at {row['share']:.1%}: {row['top1']:.2%}, "
                f"{100 * row['gap']:+.2f} +- {100 * row['error']:.2f} points",
                flush=True,
            )


def original_answers(options: argparse.Namespace, peers: Peers, val: Photographs) -> NDArray[np.float64]:
    """The original's answers to these photographs, from an earlier result if there is one."""
    for row in read_rows(options.results):
        if (row["kind"], row["network"], row.get("images")) == ("original", peers.name, len(val.pixels)):
            return unpacked(row["right"], row["images"]).astype(float)
    right = answers_right(peers.model, val, peers.name)
    row = {"kind": "original", "network": peers.name, "images": len(right), "right": packed(right)}
    add_row(options.results, {**row, "top1": float(right.mean())})
    return right.astype(float)


def latency(options: argparse.Namespace) -> None:
    """One photograph in onnxruntime: every network in turns with the original, the median of the turns."""
    peers = Peers(options)
    full = peers.graph.full_genome()
    genomes = {("original", 1.0): full}
    genomes |= {(m, s): peers.genome(m, s) for s in options.at for m in options.only if m != L1}
    image = torch.zeros(1, 3, SIZE, SIZE)
    with tempfile.TemporaryDirectory() as place:
        files = {}
        for number, (key, genome) in enumerate(genomes.items()):
            files[key] = Path(place) / f"{number}.onnx"
            # Weights do not matter for latency; those of a plain cut can give huge outputs.
            export_onnx(peers.graph.prune(genome).eval(), image, files[key], tolerance=1.0)
        for threads in options.threads:
            sessions = [open_session(file, threads=threads) for file in files.values()]
            calls = [lambda session=session: run_session(session, image) for session in sessions]
            times = time_in_turns(calls, options.turns, fewest=options.turns, seconds=SECONDS, runs=3)
            for (method, at), own in zip(genomes, times, strict=True):
                # The ratio within each turn: a busy moment falls on both.
                ratios = [mine / before for mine, before in zip(own, times[0], strict=True)]
                row = {
                    "kind": "latency",
                    "network": peers.name,
                    "name": peers.front["name"] if method == SEARCH else method,
                    "method": method,
                    "at": at,
                    "share": peers.share(genomes[method, at]),
                    "threads": threads,
                    "milliseconds": 1e3 * statistics.median(own),
                    "ratio": statistics.median(ratios),
                }
                add_row(options.results, row)
                print(
                    f"{row['name']:>14} at {row['share']:.1%}, {threads} threads: "
                    f"{row['milliseconds']:.2f} ms, {row['ratio']:.2f} of the original's",
                    flush=True,
                )
