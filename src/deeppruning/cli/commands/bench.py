"""`deeppruning bench`: whether the networks of a run are really faster, measured side by side."""

import json
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.flags import DEVICES
from deeppruning.cli.options.run import Vouched, int8_images, int8_options, run_argument, trust_options
from deeppruning.errors import InputError
from deeppruning.exporting.bench import ROUNDS, bench_networks, keep_figures
from deeppruning.importing.resolve import is_onnx
from deeppruning.reporting import write_report
from deeppruning.system.commands import command
from deeppruning.thinning.measuring import bench_files


@click.command()
@run_argument
@click.option(
    "--batch", "batches", type=click.IntRange(min=1), multiple=True, default=(1, 32),
    help="Batch size; may be repeated. [1 and 32]",
)  # fmt: skip
@click.option(
    "--runs", type=click.IntRange(min=1),
    help=f"Number of forward passes per network. [{ROUNDS}, fewer if slow]",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), default=1, help="Number of CPU threads. [1]")
@click.option("--device", default="auto", help=f"{DEVICES} [auto]")
@int8_options("Also quantise every network and measure it next to its float version.")
@click.option(
    "--beside",
    type=click.Path(path_type=Path),
    metavar="FILE.onnx",
    help="If RUN is an ONNX file: the ONNX file to compare it with.",
)
@click.option("--quiet", is_flag=True, help="Print the tables only.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as one JSON object.")
@trust_options("model", "data")
def bench(
    run: Path, batches: tuple[int, ...], runs: int | None, threads: int, device: str, quiet: bool,
    as_json: bool, int8: bool, data_dir: Path | None, test_images: int | None, beside: Path | None,
    **settings: Any,
) -> None:  # fmt: skip
    """Measure the latency of the networks of RUN side by side: the original, the selected ones, the targets.

    All networks run one forward pass in turn, for many rounds, in PyTorch and (if installed) onnxruntime, so
    that a busy moment of the machine affects all alike. Prints the median and half the interquartile range,
    saves the figures in the run and rewrites its report. Networks are measured in deployment form, with batch
    norms folded. Files written by `deeppruning export --int8` are measured too; --int8 quantises all networks
    for this measurement, including the original, and prints their test errors.

    RUN may also be an ONNX file: it is measured in onnxruntime together with the file given by --beside.

    \b
    Example:
      deeppruning bench runs/r56
      deeppruning bench runs/r56 --batch 1 --batch 64 --threads 4
      deeppruning bench runs/r56 --int8
      deeppruning bench detector.onnx --beside thin.onnx
    """
    vouched = Vouched.take(settings)
    if is_onnx(run) or beside is not None:
        if beside is None or not is_onnx(run) or int8 or device not in ("auto", "cpu"):
            raise InputError(
                "two ONNX files are measured side by side, on the CPU and as they are: "
                f"`{command('bench', 'a.onnx', '--beside', 'b.onnx')}`; --beside is not for a run folder"
            )
        click.echo(bench_files(run, beside, batches, threads=threads, as_json=as_json))
        return
    figures = bench_networks(
        run, batches=batches, rounds=runs, threads=threads, device=device,
        spec=vouched.model, trust_run=vouched.trust_run, int8=int8,
        material=int8_images(vouched, int8, data_dir, test_images),
    )  # fmt: skip
    reason = keep_figures(run, figures)
    note = f"not saved in the run: {reason}" if reason else f"report: {write_report(run)}"
    shown = str(figures) if quiet else f"{figures}\n{note}"
    click.echo(json.dumps(figures) if as_json else shown)
