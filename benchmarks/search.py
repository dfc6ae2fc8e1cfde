"""What a search costs: seconds a candidate by refit, recalibration and brief training, and time to a result.

Without --runs: the same thin networks are evaluated in the three ways, in turns on one thread, so that a
busy machine disturbs all alike. Weights do not matter for that. And what guides a search is found once, as
it is before the first candidate.

With --comparison FOLDER: a finished `deeppruning compare` with guided and es-plus, the paper's search, and
the same number of evaluations each: after how many evaluations, and how many seconds of them as they were
recorded, each seed of guided reached the hypervolume (of error and share of FLOPs) at which es-plus ended.
Add what the guide takes, see above.

Example: python benchmarks/search.py --models resnet56 vgg16 --data-dir data
         python benchmarks/search.py --comparison comparison
"""

import argparse
import time
from pathlib import Path

import torch
from throughput import images

from deeppruning.comparison.results import hypervolume, read_comparison
from deeppruning.config import USUAL_SAMPLE, SearchConfig
from deeppruning.graph import ChannelGraph
from deeppruning.models import create_model
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context, evaluate_candidate
from deeppruning.searching.guide import find_orders, gather_evidence, scanned_guide
from deeppruning.searching.importance import Evidence, genome_by
from deeppruning.searching.scan import scan_loss
from deeppruning.searching.task import Classification
from deeppruning.system.allocator import keep_freed_memory

KINDS = ("refit", "recalibrate", "finetune")
SHARES = (0.7, 0.5, 0.3)


def seconds_a_candidate(
    model_name: str, data_dir: Path | None, rounds: int
) -> tuple[dict[str, float], float]:
    """Processor seconds of one evaluation of each kind, averaged over networks of several sizes.

    And those that it takes to find what guides a search, once.
    """
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
        contexts[kind] = Context(graph, task, "flops", torch.zeros(1, 3, 32, 32), 0)
    start = time.process_time()
    refitted = contexts["refit"]
    evidence = gather_evidence(refitted)
    scanned_guide(evidence, find_orders(evidence), lambda cuts: [scan_loss(refitted, cut) for cut in cuts])
    guide = time.process_time() - start
    evaluate_candidate(contexts["refit"], genomes[0])  # the original is looked at once a search
    spent = dict.fromkeys(KINDS, 0.0)
    for _ in range(rounds):
        for genome in genomes:
            for kind, context in contexts.items():
                start = time.process_time()
                evaluate_candidate(context, genome)
                spent[kind] += time.process_time() - start
    return {kind: total / rounds / len(genomes) for kind, total in spent.items()}, guide


def growth(history: Path, whole: int) -> list[tuple[float, float]]:
    """(seconds spent, hypervolume) after each evaluation of a search, in the order they came in."""
    with History(history, read_only=True) as found:
        rows = found.evaluations()
    seconds, points, grown = 0.0, [], []
    for row in rows:
        seconds += row.seconds
        if row.error is not None:
            points.append((row.error, row.flops / whole))
        grown.append((seconds, hypervolume(points)))
    return grown


def compare_searches(folder: Path) -> None:
    """Print what each seed of guided took to the hypervolume at which that of es-plus ended."""
    comparison = read_comparison(folder / "results.json")
    for seed in sorted({search.seed for search in comparison.searches if search.method == "es-plus"}):
        guided, paper = (
            growth(folder / "searches" / f"{name}-seed-{seed}.sqlite", comparison.original_flops)
            for name in ("guided", "es-plus")
        )
        seconds, wanted = paper[-1]
        told = f"seed {seed}: es-plus {wanted:.3f} after {len(paper)} evaluations, {seconds:.0f} s; guided "
        reached = next((place for place, (_, volume) in enumerate(guided) if volume >= wanted), None)
        if reached is None:
            print(f"{told}never, {guided[-1][1]:.3f} after {len(guided)}")
        else:
            spent = guided[reached][0]
            print(f"{told}after {reached + 1}, {spent:.1f} s: ratio {seconds / spent:.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["resnet56", "vgg16"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--comparison", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.comparison:
        compare_searches(args.comparison)
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in args.models:
        found, guide = seconds_a_candidate(name, args.data_dir, args.rounds)
        told = ", ".join(f"{kind} {spent:.2f} s" for kind, spent in found.items())
        print(
            f"{name}: {told} a candidate; brief training / refit = {found['finetune'] / found['refit']:.1f}; "
            f"guide {guide:.0f} s, once"
        )


if __name__ == "__main__":
    main()
