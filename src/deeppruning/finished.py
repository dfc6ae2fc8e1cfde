"""What a finished run gives: its page, its networks as files, their speed, and further networks fine-tuned.

`model` is an instance of the class that was pruned, whose weights do not matter and which stays as it is; a
network of the zoo needs none. `example_input` is needed for a run with a task of your own.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deeppruning.backends import Backend
from deeppruning.backends.limits import Timeout
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.watching import watched
from deeppruning.exporting import ExportedFile, MaterialSource, bench_run, export_network
from deeppruning.exporting.bench import bench_given, keep_figures
from deeppruning.exporting.bench_table import BenchFigures
from deeppruning.exporting.given import Given, example_of
from deeppruning.exporting.networks import read_network
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.exporting.run_file import export_given
from deeppruning.jobs.job import check_same_network, finetune_one, is_same_network, pick_one
from deeppruning.jobs.prepare import Setup
from deeppruning.jobs.result import Result
from deeppruning.jobs.solution import Solution
from deeppruning.limits import Limits
from deeppruning.objectives import Objective
from deeppruning.reporting import write_report, write_report_or_warn
from deeppruning.roles import KNEE, ORIGINAL
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.folder import FINETUNE
from deeppruning.searching.events import Observer, ignore
from deeppruning.searching.task import Task
from deeppruning.system.arguments import check_arguments


@check_arguments
def report(run_dir: str | Path) -> Path:
    """Write the page of a run, report.html, and its plots into its folder, and return the page's path.

    For example: `dp.report("runs/mine")`. A run that is going on has a page as well.
    """
    return write_report(run_dir)


@check_arguments
def export(
    run_dir: str | Path | Given,
    solution: str = KNEE,
    *,
    format: str = "onnx",
    out: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    int8: bool = False,
    calibration: Any = None,
    test: Any = None,
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
) -> ExportedFile:
    """Write a network as ONNX, torch-export or safetensors, its outputs compared with PyTorch's.

    For example: `dp.export("runs/mine", model=MyNet()).path`. `solution` is a role, "original", or
    "candidate-57" once that is fine-tuned; `normalize` folds the normalisation in, so that the file takes
    pixels of 0..255. In place of a run folder, a result or a front is taken (`dp.export(front,
    out="thin.onnx")`), or a network itself: `result.best(flops=0.4)`, `front.at(flops=0.4)`, any module
    with its `example_input`.

    `int8` quantises an ONNX file, which is calibrated on the sample of the search where the run records its
    data, else on `calibration`: a tensor of inputs as the file takes them, or images as `prune` takes them.
    The test error of both is measured on the run's test images, or on `test`.
    """
    given = calibration is not None or test is not None
    source = MaterialSource(calibration=calibration, test=test) if given else None
    if not isinstance(run_dir, (str, os.PathLike)):
        return export_given(
            run_dir,
            solution,
            format_=format,
            out=out,
            normalize=normalize,
            tolerance=tolerance,
            example_input=example_input,
            int8=int8,
            source=source,
        )
    written = export_network(
        run_dir,
        solution,
        format_=format,
        out=out,
        normalize=normalize,
        tolerance=tolerance,
        model=model,
        example_input=example_input,
        int8=int8,
        source=source,
    )
    for note in written.notes:
        warnings.warn(note, stacklevel=3)
    if int8 and not written.notes:
        write_report_or_warn(run_dir)
    return written


@check_arguments
def bench(
    run_dir: str | Path | Given,
    *,
    batches: Iterable[int] = (1, 32),
    rounds: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    int8: bool = False,
    calibration: Any = None,
    test: Any = None,
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
) -> BenchFigures:
    """Measure the original and the solutions of a run side by side; the figures print as tables.

    For example: `print(dp.bench("runs/mine", batches=(1, 64), model=MyNet()))`. They are kept in the run,
    and its page is written anew. `int8`, `calibration` and `test` as in `export`; int8 files that were
    exported into the run are measured without being asked for. In place of a run folder, a result, a front or
    a network itself is taken as in `export`, measured beside the original: that of its search, or `model`.
    """
    given = calibration is not None or test is not None
    source = MaterialSource(calibration=calibration, test=test) if given else None
    if isinstance(run_dir, Result):
        model, example_input = model or run_dir.network, example_of(run_dir, example_input)
        run_dir = run_dir.run_dir
    in_folder = isinstance(run_dir, (str, os.PathLike))
    measure: Callable[..., BenchFigures] = bench_run if in_folder else bench_given
    figures = measure(
        run_dir,
        batches=dict.fromkeys(batches),
        rounds=rounds,
        threads=threads,
        device=device,
        model=model,
        example_input=example_input,
        int8=int8,
        source=source,
    )
    if not isinstance(run_dir, (str, os.PathLike)):
        return figures
    reason = keep_figures(run_dir, figures)
    if reason:
        warnings.warn(f"not kept in the run: {reason}", stacklevel=3)
    else:
        write_report(run_dir)
    return figures


@check_arguments
def finetune(
    run_dir: str | Path,
    candidate: int,
    model: nn.Module | None = None,
    train: Any = None,
    test: Any = None,
    *,
    options: FinetuneConfig | None = None,
    threads: int | None = None,
    device: str | None = None,
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
) -> Solution:
    """Fine-tune any candidate of a run, by its id, and save it in the run folder as candidate-ID.

    By the run's own options unless others are given; a call that was stopped goes on where it was.
    `progress` and `report` as in `prune`. For example: `dp.finetune("runs/mine", 57, model, train, test)`.
    """
    with RunFolder.open(run_dir) as run:
        network = _original(run, model)
        search = SearchConfig.from_table(run.config["search"])
        usual = FinetuneConfig.from_table(run.config["finetune"])
        chosen = options or usual
        cores = threads or search.threads
        setup = Setup(
            model=network,
            train=train,
            test=test,
            search=changed(search, threads=cores),
            finetune=options if task else chosen,
            workers=1,
            device=device or run.config["run"]["device"],
            backend=backend,
            candidate_timeout=candidate_timeout,
            task=task,
            objective=objective,
            example_input=example_input,
            observer=observer,
            target=Limits.of(run.config.get("target")),
        )
        described = json.dumps([chosen.to_table(), cores], sort_keys=True)
        digest = hashlib.sha256(described.encode()).hexdigest()[:8]
        same = (chosen, cores) == (usual, search.threads)
        job = setup.job()
        with job.backend, watched(job, progress) as shown:
            solution = finetune_one(shown, run, candidate, variant="" if same else digest)
        if not same and task is None:
            training = f"{solution.role}/{digest}"
            run.history.set_fact(facts.training_fact(training), {**chosen.to_table(), "threads": cores})
    if report:
        write_report_or_warn(run_dir)
    return solution


def _original(run: RunFolder, model: nn.Module | None) -> nn.Module:
    """The network that the run prunes: as it is given, or with the weights that the run holds."""
    kept = run.path / FINETUNE / f"{ORIGINAL}.safetensors"
    if model is not None and (is_same_network(run, model) or not kept.is_file()):
        check_same_network(run, model)
        return model
    return read_network(run.path, ORIGINAL, model=model).model


@check_arguments
def pick(
    run_dir: str | Path,
    target: Limits | Mapping[str, Any] | str,
    model: nn.Module | None = None,
    train: Any = None,
    test: Any = None,
    *,
    replace: bool = False,
    device: str | None = None,
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
) -> Solution:
    """Choose the candidate of a finished run that meets limits, fine-tune it as the run did, save it.

    Where the error is limited, it is checked on a tenth of the training images, without which it is trained.
    """
    limits = Limits.of(target)
    with RunFolder.open(run_dir) as run:
        network = _original(run, model)
        own = Limits.of(run.config.get("target"))
        search = SearchConfig.from_table(run.config["search"])
        # Of fewer images the run's own sample may not be had.
        variant = "set-aside" if limits.bounds_error and not own.bounds_error else ""
        setup = Setup(
            model=network,
            train=train,
            test=test,
            search=changed(search, sample=None) if variant else search,
            finetune=None if task else FinetuneConfig.from_table(run.config["finetune"]),
            workers=1,
            device=device or run.config["run"]["device"],
            backend=backend,
            candidate_timeout=candidate_timeout,
            task=task,
            objective=objective,
            example_input=example_input,
            observer=observer,
            target=limits if limits.bounds_error else own,  # images that the run has set aside stay so
        )
        job = setup.job()
        with job.backend, watched(job, progress) as shown:
            solution = pick_one(shown, run, limits, variant=variant, instead=replace)
    if report:
        write_report_or_warn(run_dir)
    return solution
