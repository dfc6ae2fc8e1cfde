"""What a finished run gives: its page, its networks as files, and whether they are really faster.

`model` is an instance of the class that was pruned, whose weights do not matter and which stays as it is; a
network of the zoo needs none. `example_input` is needed for a run with a task of your own.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from deeppruning.errors import refuse_unknown_parameters
from deeppruning.exporting import ExportedFile, bench_run, export_network
from deeppruning.exporting.bench import keep_figures
from deeppruning.exporting.bench_table import BenchFigures
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.reporting import write_report
from deeppruning.roles import KNEE


@refuse_unknown_parameters
def report(run_dir: str | Path) -> Path:
    """Write the page of a run, report.html, and its plots into its folder, and return the page's path.

    For example: `dp.report("runs/mine")`. A run that is going on has a page as well.
    """
    return write_report(run_dir)


@refuse_unknown_parameters
def export(
    run_dir: str | Path,
    solution: str = KNEE,
    *,
    format: str = "onnx",
    out: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
) -> ExportedFile:
    """Write a network of a run as ONNX, torch-export or safetensors, its outputs compared with PyTorch's.

    For example: `dp.export("runs/mine", model=MyNet()).path`. `solution` is a role, "original", or
    "candidate-57" once that is fine-tuned; `normalize` folds the normalisation in, so that the file takes
    pixels of 0..255.
    """
    return export_network(
        run_dir,
        solution,
        format_=format,
        out=out,
        normalize=normalize,
        tolerance=tolerance,
        model=model,
        example_input=example_input,
    )


@refuse_unknown_parameters
def bench(
    run_dir: str | Path,
    *,
    batches: Iterable[int] = (1, 32),
    rounds: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
) -> BenchFigures:
    """Measure the original and the solutions of a run side by side; the figures print as tables.

    For example: `print(dp.bench("runs/mine", batches=(1, 64), model=MyNet()))`. They are kept in the run,
    and its page is written anew.
    """
    figures = bench_run(
        run_dir,
        batches=dict.fromkeys(batches),
        rounds=rounds,
        threads=threads,
        device=device,
        model=model,
        example_input=example_input,
    )
    reason = keep_figures(run_dir, figures)
    if reason:
        warnings.warn(f"not kept in the run: {reason}", stacklevel=3)
    else:
        write_report(run_dir)
    return figures
