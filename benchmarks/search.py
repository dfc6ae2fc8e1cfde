"""What a search costs: seconds a candidate by refit, recalibration and brief training, and time to a result.

Without --runs: the same thin networks are evaluated in the three ways, in turns on one thread, so that a
busy machine disturbs all alike. Weights do not matter for that.

With --runs GUIDED PAPER: two finished runs of `deeppruning prune` on the same network, from whose histories
the processor time is read that each had spent when it reached a hypervolume (of error and share of FLOPs):
that at which the second one ended.

Example: python benchmarks/search.py --models resnet56 vgg16 --data-dir data
         python benchmarks/search.py --runs runs/guided runs/paper
"""

import argparse
import time
from pathlib import Path

import torch
from throughput import images

from deeppruning.comparison.results import hypervolume
from deeppruning.config import USUAL_SAMPLE, SearchConfig
from deeppruning.graph import ChannelGraph
from deeppruning.importance import Evidence, genome_by
from deeppruning.models import create_model
from deeppruning.pruning.candidate import Context, evaluate_candidate
from deeppruning.pruning.task import Classification
from deeppruning.runs import RunFolder

KINDS = ("refit", "recalibrate", "finetune")
SHARES = (0.7, 0.5, 0.3)


def seconds_a_candidate(model_name: str, data_dir: Path | None, rounds: int) -> dict[str, float]:
    """Processor seconds of one evaluation of each kind, averaged over networks of several sizes."""
    torch.manual_seed(0)
    model = create_model(model_name)
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32), depth=True)
    whole = graph.flops(graph.full_genome())
    genomes = [genome_by("l1", Evidence(graph, model), flops=share * whole) for share in SHARES]
    contexts = {}
    for kind in KINDS:
        config = SearchConfig() if kind == "refit" else SearchConfig.paper(evaluation=kind)
        data, _ = images(USUAL_SAMPLE, data_dir)
        task = Classification(data, config, teacher=model)
        contexts[kind] = Context(graph, task, "flops", torch.zeros(1, 3, 32, 32), 0, refits=kind == "refit")
    evaluate_candidate(contexts["refit"], genomes[0])  # the original is looked at once a search
    spent = dict.fromkeys(KINDS, 0.0)
    for _ in range(rounds):
        for genome in genomes:
            for kind, context in contexts.items():
                start = time.process_time()
                evaluate_candidate(context, genome)
                spent[kind] += time.process_time() - start
    return {kind: total / rounds / len(genomes) for kind, total in spent.items()}


def growth(path: Path) -> list[tuple[float, float]]:
    """(processor seconds spent, hypervolume) after each evaluation of a run, in the order they came in."""
    with RunFolder.open(path, read_only=True) as run:
        whole = run.history.get_fact("original")["flops"]
        rows = run.history.evaluations()
    seconds, points, found = 0.0, [], []
    for row in rows:
        seconds += row.seconds
        if row.error is not None:
            points.append((row.error, row.flops / whole))
        found.append((seconds, hypervolume(points)))
    return found


def compare_runs(guided: Path, paper: Path) -> None:
    """Print the time of each to the hypervolume at which the second ended."""
    first, second = growth(guided), growth(paper)
    wanted = second[-1][1]
    reached = [next((spent for spent, volume in one if volume >= wanted), None) for one in (first, second)]
    for name, one, spent in zip(("guided", "paper"), (first, second), reached, strict=True):
        told = "never" if spent is None else f"{spent:8.1f} s"
        print(
            f"{name:8} {len(one):4} evaluations, {one[-1][0]:8.1f} s, hypervolume {one[-1][1]:.3f}; "
            f"{told} to {wanted:.3f}"
        )
    if reached[0] and reached[1]:
        print(f"ratio {reached[1] / reached[0]:.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet56", "vgg16"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs", nargs=2, type=Path, metavar=("GUIDED", "PAPER"))
    args = parser.parse_args()
    if args.runs:
        compare_runs(*args.runs)
        return
    torch.set_num_threads(1)
    for name in args.models:
        found = seconds_a_candidate(name, args.data_dir, args.rounds)
        told = ", ".join(f"{kind} {spent:.2f} s" for kind, spent in found.items())
        print(
            f"{name}: {told} a candidate; brief training / refit = {found['finetune'] / found['refit']:.1f}"
        )


if __name__ == "__main__":
    main()
