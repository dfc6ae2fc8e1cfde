"""Really faster? ResNet56 on CIFAR-10 by FLOPs, by latency and by l1-norm: latency and error side by side.

    deeppruning prune resnet56 --weights W --data cifar10 --generations 7 --offspring 20 \\
        --finetune-epochs 0 --out runs/flops
    deeppruning prune resnet56 --weights W --data cifar10 --generations 7 --offspring 20 \\
        --finetune-epochs 0 --objective latency --latency-runtime onnxruntime --out runs/latency
    python benchmarks/faster.py --weights W --flops-run runs/flops --latency-run runs/latency

Networks: the original; the knee of the search by FLOPs; the knee of the search by latency, and its best
within half of the original's latency; for both of these, l1-norm at the same latency: the same share of
every layer, no block gone, and of widths as they fall and in multiples of 4 and 8 those that leave it the
most FLOPs. What is half and what is the same latency is measured, under the conditions that the latency was
planned for. Test errors as cut, refitted, and after one epoch of our default fine-tuning, which begins for
ours with the refitted weights and for l1-norm with those as cut. Networks and errors are kept in --out: a
second call goes on; latencies are measured anew, all networks in turns.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning import ChannelGraph
from deeppruning.config import RUNTIMES, FinetuneConfig
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome, pack_genome, unpack_genome
from deeppruning.jobs.prepare import prepare
from deeppruning.latency import Conditions, LatencyPlan
from deeppruning.latency.plan import measure_networks
from deeppruning.models import create_model
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.roles import KNEE
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.records import Candidate
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.training.evaluate import evaluate
from deeppruning.training.loop import fit
from deeppruning.training.tensors import hash_tensors
from deeppruning.training.weights import load_weights, normalization_for

EXAMPLE = torch.zeros(1, 3, 32, 32)
HALF = 0.5
MULTIPLES = (1, 4, 8)
L1 = "l1, "
COLUMNS = ("cut", "refitted", "one epoch")


@dataclass(frozen=True)
class Kept:
    """What is looked at in a finished run."""

    candidates: dict[int, Candidate]
    knee: Candidate
    plan: LatencyPlan | None

    @classmethod
    def of(cls, path: Path) -> Kept:
        with RunFolder.open(path, read_only=True) as run:
            candidates = {one.id: one for one in run.history.candidates()}
            picks = run.history.picks()
            table = run.history.get_fact(facts.LATENCY_PLAN)
        plan = None if table is None else LatencyPlan.from_table(table)
        return cls(candidates, candidates[picks[max(picks)][KNEE]], plan)

    def front(self) -> list[Candidate]:
        """Those that nothing cheaper is judged better than, and the knee."""
        able = [one for one in self.candidates.values() if one.cost is not None]
        members: dict[int, Candidate] = {self.knee.id: self.knee}
        best = float("inf")
        for one in sorted(able, key=lambda one: one.evaluated.cost):
            if one.evaluated.judged < best:
                members[one.id] = one
                best = one.evaluated.judged
        return list(members.values())


def by_l1(graph: ChannelGraph) -> list[Genome]:
    """The same share of every layer by l1-norm, no block gone, at many FLOPs and in several multiples."""
    scores = CRITERIA["l1"].scores(Evidence(graph, graph.prune(graph.full_genome())))
    found = {}
    for multiple in MULTIPLES:
        space = Space(
            graph.num_genes,
            [group.genes for group in graph.groups if group.prunable],
            scores={"l1": scores},
            price=graph.flops,
            repair=graph.repair,
            multiple=multiple,
        )
        for share in np.linspace(0.16, 0.6, 23):
            price = share * graph.flops(graph.full_genome())
            genome = space.fill(space.uniform(price, "l1"), price, "l1")
            found[genome.tobytes()] = genome
    return list(found.values())


def networks(graph: ChannelGraph, flops: Kept, latency: Kept) -> dict[str, Genome]:
    """Names and genomes of all that are compared."""
    assert latency.plan is not None
    full = graph.full_genome()
    ours, rivals = latency.front(), by_l1(graph)
    thin = [graph.prune(genome) for genome in (full, *(one.genome for one in ours), *rivals)]
    whole, *times = measure_networks(thin, EXAMPLE, latency.plan.conditions)
    measured = dict(zip((one.id for one in ours), times, strict=False))
    half = min(
        (one for one in ours if measured[one.id] <= HALF * whole), key=lambda one: one.evaluated.judged
    )
    chosen = {"original": full, "knee by FLOPs": flops.knee.genome}
    for name, one in (("knee by latency", latency.knee), ("half the latency", half)):
        within = [
            genome
            for genome, seconds in zip(rivals, times[len(ours) :], strict=True)
            if seconds <= measured[one.id]
        ]
        chosen[name] = one.genome
        chosen[f"{L1}{name}"] = max(within, key=graph.flops)
    return chosen


class Remembered(nn.Module):
    """A teacher of several networks that see the same batches: it is asked once about each."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.teacher = teacher
        self.answers: dict[str, Tensor] = {}

    def forward(self, images: Tensor) -> Tensor:
        key = hash_tensors({"images": images})
        if key not in self.answers:
            self.answers[key] = self.teacher(images)
        return self.answers[key]


@dataclass(frozen=True, eq=False)
class Judge:
    """Test errors of a cut, and what it takes to find them."""

    teacher: nn.Module
    graph: ChannelGraph
    reference: Reference
    train: ImageSet
    test: ImageSet
    epochs: int

    def __call__(self, name: str, genome: Genome) -> dict[str, float]:
        """As cut, refitted, and trained."""
        cut, refitted = self.graph.prune(genome), self.graph.prune(genome)
        if genome.all():
            return dict.fromkeys(COLUMNS, evaluate(cut, self.test).error)
        refit_in_place(self.reference, self.graph, genome, refitted)
        untrained = [evaluate(one, self.test).error for one in (cut, refitted)]
        trained, options = cut if name.startswith(L1) else refitted, FinetuneConfig(epochs=self.epochs)
        fit(
            trained,
            self.train,
            options,
            teacher=self.teacher,
            distill=options.distill,
            temperature=options.temperature,
        )
        return dict(zip(COLUMNS, [*untrained, evaluate(trained, self.test).error], strict=True))


def load_images(weights: Path, data_dir: str | None) -> tuple[ImageSet, ImageSet]:
    """CIFAR-10 as these weights want it."""
    data, normalization = load_data("cifar10", data_dir=data_dir), normalization_for(weights)
    assert data.test is not None
    return replace(data.train, normalization=normalization), replace(data.test, normalization=normalization)


def table(graph: ChannelGraph, genomes: dict[str, Genome], errors: dict[str, Any]) -> None:
    """Latencies in turns, beside the errors that are known."""
    full = graph.full_genome()
    columns: dict[str, list[float]] = {}
    for runtime in RUNTIMES:
        for batch in (1, 32):
            for threads in (1, 2):
                conditions = Conditions(runtime, batch, threads)
                thin = [graph.prune(genome) for genome in genomes.values()]
                columns[str(conditions)] = measure_networks(thin, EXAMPLE, conditions)
    print("| " + " | ".join(["network", "FLOPs", *COLUMNS, *columns]) + " |")
    print("|---|---|" + "---|" * len([*COLUMNS, *columns]))
    for place, (name, genome) in enumerate(genomes.items()):
        share = graph.flops(genome) / graph.flops(full)
        shown = [f"{100 * errors[name][key]:.1f}" if name in errors else "-" for key in COLUMNS]
        cells = [f"{1000 * times[place]:.2f} ({times[place] / times[0]:.2f}x)" for times in columns.values()]
        print(f"| {name} | {share:.0%} | {' | '.join([*shown, *cells])} |")
    print("\nBy how much of the share of FLOPs cut the latency fell:")
    for place, (name, genome) in enumerate(genomes.items()):
        cut = 1 - graph.flops(genome) / graph.flops(full)
        gained = [(1 - times[place] / times[0]) / cut for times in columns.values()] if cut else []
        print(f"{name}: {', '.join(f'{100 * each:.0f} %' for each in gained)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--flops-run", type=Path, required=True)
    parser.add_argument("--latency-run", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("faster.json"))
    parser.add_argument("--latency-only", action="store_true", help="no errors beyond those in --out")
    options = parser.parse_args()
    keep_freed_memory()
    model = create_model("resnet56", num_classes=10)
    load_weights(model, options.weights)
    model.eval()
    graph = ChannelGraph(model, EXAMPLE, depth=True)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"errors": {}}
    if "genomes" not in kept:
        chosen = networks(graph, Kept.of(options.flops_run), Kept.of(options.latency_run))
        kept["genomes"] = {name: pack_genome(genome).hex() for name, genome in chosen.items()}
        options.out.write_text(json.dumps(kept))
    genomes = {
        name: unpack_genome(bytes.fromhex(packed), graph.num_genes)
        for name, packed in kept["genomes"].items()
    }
    errors = kept["errors"]
    if not options.latency_only:
        train, test = load_images(options.weights, options.data_dir)
        task = prepare(model, train, measure=False).task
        reference = Reference.of(graph, task.refit_inputs(final=True))
        judge = Judge(Remembered(model), graph, reference, train, test, options.epochs)
        # Those that the question is about come first.
        for name in sorted(genomes, key=lambda name: (name != "original", "half" not in name)):
            if name not in errors:
                errors[name] = judge(name, genomes[name])
                options.out.write_text(json.dumps(kept))
                print(name, errors[name], flush=True)
    table(graph, genomes, errors)


if __name__ == "__main__":
    main()
