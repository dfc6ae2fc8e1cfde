"""`deeppruning bench`: the networks of a run measured side by side, to see whether they are really faster."""

import json
from pathlib import Path

import click

from deeppruning.cli.options.int8 import int8_options, material_source
from deeppruning.cli.options.search import run_argument
from deeppruning.cli.options.trust import trust_options
from deeppruning.exporting.bench import ROUNDS, bench_networks, keep_figures
from deeppruning.reporting import write_report


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
@int8_options("Quantise every network, too, and measure it beside itself in floats.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as one JSON object.")
@trust_options("model", "data")
def bench(
    run: Path, batches: tuple[int, ...], runs: int | None, threads: int, device: str, as_json: bool,
    int8: bool, data_dir: Path | None, test_images: int | None, trust_run: bool, named_model: str | None,
    named_data: str | None,
) -> None:  # fmt: skip
    """Measure the original, the picks and the target of RUN side by side.

    One forward pass of each in turn, many rounds, in PyTorch and (where installed) onnxruntime: a busy
    moment of the machine falls on all alike. Prints the median and half the distance between the
    quartiles, keeps the figures in the run and rewrites its report. All are measured in deployment form,
    batch norms folded. int8 files of `deeppruning export --int8` are measured as well; --int8 quantises all
    networks for the occasion, the original too, with their test errors.

    \b
    Example:
      deeppruning bench runs/r56
      deeppruning bench runs/r56 --batch 1 --batch 64 --threads 4
      deeppruning bench runs/r56 --int8
    """
    figures = bench_networks(
        run, batches=batches, rounds=runs, threads=threads, device=device,
        spec=named_model, trust_run=trust_run, int8=int8,
        material=material_source(int8, named_data, data_dir, test_images, trust_run),
    )  # fmt: skip
    reason = keep_figures(run, figures)
    note = f"not kept in the run: {reason}" if reason else f"report: {write_report(run)}"
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo(f"{figures}\n{note}")
