"""Is more than one step worth it? Selection in two steps, and pruning in two stages, against one of each.

    python benchmarks/stages.py --weights resnet20.th [--model resnet20] [--share 0.21] [--data-dir data]
    python benchmarks/stages.py ... --ways one-step two-stages --seed 1 --precision bfloat16

CIFAR-10, guided searches by inputs alone. All networks have at most the given share of the FLOPs and are
trained by the default fine-tuning, the original being followed; errors are on all test images.

- *one step*: the best by the score of the search, refitted.
- *two steps*: of the best few by that score, the one that errs least on 1,000 other training images after
  32 steps of distillation on 4,000 images; it starts anew from its refit.
- *two stages*: a network halfway there (the square root of the share) is trained for one epoch, then searched
  again; what comes of it has one epoch less, so that all have been through as many.
- *one step, as long*: the best by score again, trained for the processor time of the two stages, in which the
  search of the second is counted.

Networks and errors are kept in --out: a second call goes on where the first was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from faster import load_images
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.sample import balanced_sample, split_balanced
from deeppruning.jobs.result import Front
from deeppruning.jobs.solution import Solution
from deeppruning.models import create_model
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.training.evaluate import evaluate
from deeppruning.training.loop import fit
from deeppruning.training.planning import usual_rate
from deeppruning.training.weights import load_weights

NEAR = 0.85  # of the share: what costs less is no rival of the best
FEW = 8  # networks of the second step
WAYS = ("one-step", "two-steps", "two-stages")
STEPS_ON = 4000  # images: 32 steps of 125
JUDGED_ON = 1000


@dataclass(frozen=True, eq=False)
class Bench:
    """What all ways share: the original, the data, the options, and what is known already."""

    teacher: nn.Module
    train: ImageSet
    test: ImageSet
    inputs: Tensor
    search: SearchConfig
    epochs: int
    precision: str
    known: dict[str, float]
    keep: Callable[[], None]

    def front(self, model: nn.Module, share: float) -> Front:
        """The guided search from this network on, half of its effort at a share of the FLOPs."""
        options = replace(self.search, focus=share, low=0.8 * share)
        return dp.search(model, self.inputs, search=options, workers=1, progress=False)

    def trained(self, model: nn.Module, epochs: float, images: ImageSet | None = None) -> nn.Module:
        """A copy after some epochs of the default fine-tuning."""
        thin = deepcopy(model)
        options = FinetuneConfig(
            epochs=epochs,
            batch_size=125 if images else FinetuneConfig().batch_size,
            precision=self.precision,
            seed=self.search.seed,
        )
        options = replace(options, lr=usual_rate(options))
        data = images or self.train
        fit(
            thin,
            data,
            options,
            teacher=self.teacher,
            distill=options.distill,
            temperature=options.temperature,
        )
        return thin

    def note(self, name: str, find: Callable[[], float]) -> float:
        """What is known under this name, or is found now."""
        if name not in self.known:
            self.known[name] = find()
            self.keep()
            print(f"{name}: {self.known[name]:.4f}", flush=True)
        return self.known[name]


def best_after_steps(bench: Bench, front: Front, flops: float) -> Solution:
    """Of the best few by score, the best after 32 steps."""
    within = [one for one in front.candidates if one.cost is not None and NEAR * flops <= one.flops <= flops]
    best = sorted(within, key=lambda one: one.evaluated.judged)[:FEW]
    few = [Solution.of_candidate(one, front.meter.context) for one in best]
    steps, judged = split_balanced(balanced_sample(bench.train, STEPS_ON + JUDGED_ON, 1), STEPS_ON)
    errors = [
        bench.note(
            f"after 32 steps, number {place} by score",
            lambda thin=thin: evaluate(bench.trained(thin.model, 1, steps), judged).error,
        )
        for place, thin in enumerate(few)
    ]
    return few[min(range(len(few)), key=errors.__getitem__)]


def compare(bench: Bench, model: nn.Module, share: float, ways: list[str]) -> None:
    """These ways, one after the other."""
    front = bench.front(model, share)
    flops = share * front.original.flops
    within = [one for one in front.candidates if one.cost is not None and one.flops <= flops]
    best = min(within, key=lambda one: one.evaluated.judged)
    first = Solution.of_candidate(best, front.meter.context)
    spent = 0.0
    if "one-step" in ways:
        spent = note_training(bench, "one step", first, front)
    if "two-steps" in ways:
        note_training(bench, "two steps", best_after_steps(bench, front, flops), front)
    if "two-stages" in ways:
        start = time.process_time()
        halfway = bench.trained(bench.front(model, share**0.5).at(flops=share**0.5).model, 1)
        again = bench.front(halfway, share**0.5)
        last = again.at(flops=flops / again.original.flops)
        before = time.process_time() - start
        bench.note("two stages, halfway", lambda: evaluate(halfway, bench.test).error)
        whole = before + note_training(bench, "two stages", last, front, bench.epochs - 1)
        if "one-step" in ways:
            epochs = round(bench.epochs * whole / spent, 2)
            note_training(bench, "one step, as long", first, front, epochs)


def note_training(
    bench: Bench, name: str, thin: Solution, front: Front, epochs: float | None = None
) -> float:
    """Train a network and note its errors; returns the processor seconds of the training."""
    epochs = epochs or bench.epochs
    bench.note(f"{name}, FLOPs", lambda: thin.flops / front.original.flops)
    bench.note(f"{name}, untrained", lambda: evaluate(thin.model, bench.test).error)
    start = time.process_time()
    tuned = bench.trained(thin.model, epochs)
    spent = time.process_time() - start
    bench.note(f"{name}, {epochs:g} epochs", lambda: evaluate(tuned, bench.test).error)
    return bench.note(f"{name}, seconds of {epochs:g} epochs", lambda: spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--share", type=float, default=0.21)
    parser.add_argument("--generations", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="float32", help="of training [float32]")
    parser.add_argument("--out", type=Path, default=Path("stages.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    model = create_model(options.model, num_classes=10)
    load_weights(model, options.weights)
    model.eval()
    train, test = load_images(options.weights, options.data_dir)
    sample = balanced_sample(train, 1000, options.seed)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    bench = Bench(
        model,
        train,
        test,
        normalize(sample.images, sample.normalization),
        SearchConfig(generations=options.generations, round_to=1, threads=1, seed=options.seed),
        options.epochs,
        options.precision,
        known,
        lambda: Path(options.out).write_text(json.dumps(known, indent=1)) and None,
    )
    compare(bench, model, options.share, options.ways)


if __name__ == "__main__":
    main()
