"""`deeppruning bench`: the networks of a run measured side by side, to see whether they are really faster."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from deeppruning.amounts import amount
from deeppruning.cli.options.search import run_argument
from deeppruning.cli.options.trust import trust_options
from deeppruning.errors import RunError
from deeppruning.exporting.bench import ROUNDS, bench_run
from deeppruning.reporting import write_report
from deeppruning.roles import ORIGINAL
from deeppruning.runs.facts import BENCH
from deeppruning.runs.folder import RunFolder

ADVICE = (
    "try `--round-to 8` in a new search (widths that vector units fill), `--objective latency`, "
    "or a larger batch: a small network spends its time on calls, not on arithmetic"
)


@click.command()
@run_argument
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, default=(1, 32), show_default=True,
    help="Inputs in one forward pass; may be repeated.",
)  # fmt: skip
@click.option(
    "--runs", type=click.IntRange(min=1), help=f"Forward passes of each network. [{ROUNDS}, fewer if slow]"
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Processor threads."
)
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda, cuda:1 or mps.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as one JSON object.")
@trust_options("model")
def bench(
    run: Path, batches: tuple[int, ...], runs: int | None, threads: int, device: str, as_json: bool,
    trust_run: bool, named_model: str | None,
) -> None:  # fmt: skip
    """Measure the original and the three picks of RUN side by side.

    One forward pass of each in turn, many rounds, in PyTorch and (where installed) onnxruntime: a busy
    moment of the machine falls on all alike. Prints the median and half the distance between the
    quartiles, keeps the figures in the run and rewrites its report.

    \b
    Example:
      deeppruning bench runs/r56
      deeppruning bench runs/r56 --batch 1 --batch 64 --threads 4
    """
    figures = bench_run(
        run, batches=dict.fromkeys(batches), rounds=runs, threads=threads, device=device,
        spec=named_model, trust_run=trust_run,
    )  # fmt: skip
    note = _keep(run, figures)
    if as_json:
        click.echo(json.dumps({**figures, "advice": ADVICE if figures["warnings"] else None}))
        return
    click.echo(tables(figures["networks"]))
    click.echo(_footnote(figures))
    for line in figures["warnings"]:
        click.echo(f"warning: {line}")
    if figures["warnings"]:
        click.echo(ADVICE)
    if figures["noisy"]:
        click.echo("note: the spread is large, the machine was busy; measure again when it is idle")
    click.echo(note)


def tables(networks: Mapping[str, Mapping[str, Any]]) -> str:
    """Two tables with a row for each network: what it takes, and how long it takes."""
    original = networks[ORIGINAL]
    kinds = list(original["latency_ms"])
    sizes = [["network", "parameters", "FLOPs", "file", "peak memory"]]
    times = [["latency, ms", *kinds]]
    for name, one in networks.items():
        counts = [
            amount(one[key], like=original[key]) for key in ("flops", "file_bytes", "peak_memory_bytes")
        ]
        sizes.append([name, f"{one['params']:,}", counts[0], f"{counts[1]}B", f"{counts[2]}B"])
        timings = [one["latency_ms"][kind] for kind in kinds]
        times.append([name, *(f"{timing['median']:.3g} ± {timing['spread']:.1g}" for timing in timings)])
    return f"{_aligned(sizes)}\n\n{_aligned(times)}"


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *padded]))
    return "\n".join(lines)


def _footnote(figures: Mapping[str, Any]) -> str:
    where = f"{figures['threads']} thread(s)" if figures["device"] == "cpu" else figures["device"]
    missing = (
        ""
        if figures["onnxruntime"]
        else "; onnxruntime not measured: needs deeppruning-es[onnx], the processor and an exportable network"
    )
    return (
        f"(latency: median and half the quartile distance, {where}, networks in turns; peak memory: weights "
        f"and activations alive at once for one input, counted{missing})"
    )


def _keep(run: Path, figures: Mapping[str, Any]) -> str:
    """Put the figures into the run and its report; a run at work is left alone."""
    try:
        with RunFolder.open(run) as opened:
            opened.history.set_fact(BENCH, dict(figures))
    except RunError as error:
        return f"not kept in the run: {error}"
    return f"report: {write_report(run)}"
