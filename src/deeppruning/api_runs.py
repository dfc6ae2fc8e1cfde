"""The calls on the folder of a run: continue it, fine-tune more of its networks, export and measure them.

`model` is an instance of the class that was pruned. Once a run is finished its weights do not matter, as the
run holds them, and a network of the zoo needs none. `example_input` is needed for a task of your own.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deeppruning.api import advised
from deeppruning.backends import Backend
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.watching import Watch
from deeppruning.errors import InputError
from deeppruning.exporting import (
    AtHand,
    BenchFigures,
    ExportedFile,
    MaterialSource,
    bench_networks,
    export_network,
    read_network,
)
from deeppruning.exporting.bench import keep_figures
from deeppruning.exporting.networks import run_of
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.jobs.identity import check_same_network, is_same_network
from deeppruning.jobs.imitating import imitate, refit_again
from deeppruning.jobs.prepare import Compute, Job, checked, prepare
from deeppruning.jobs.result import Result
from deeppruning.jobs.run import finetune_one, pick_one, run
from deeppruning.jobs.solution import CANDIDATE_MARK, Solution, original_network
from deeppruning.limits import Limits
from deeppruning.objectives import Objective
from deeppruning.reporting import write_report
from deeppruning.roles import KNEE, ORIGINAL
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.folder import FINETUNE
from deeppruning.searching.events import Observer, ignore
from deeppruning.searching.task import Task
from deeppruning.searching.unlabelled import gather_inputs
from deeppruning.system.device import available_threads, choose_device, torch_threads
from deeppruning.tracking import Track, Tracking

MOST_IMITATED = 100_000  # inputs of a data set without labels that a network is tuned on
MOST_IMITATED_BYTES = 2**32  # of them together


def resume(
    run_dir: str | Path,
    model: nn.Module | None = None,
    train: Any = None,
    test: Any = None,
    *,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
    track: Track | Tracking = None,
) -> Result:
    """Continue a run that was stopped, to exactly the result it would have had.

    The options come from its folder; the model, with its weights, the data and whatever else is code must be
    given again. Trackers continue the records of the run; `track` names others, and () none. The other
    parameters are those of `prune`.
    """
    compute = Compute(workers, device, backend)
    with RunFolder.open(run_dir) as folder, ExitStack() as stack:
        watch = Watch(observer, progress, report=report, tracking=Tracking.of_run(folder, track))
        stack.enter_context(watch.shown())
        if model is not None:
            check_same_network(folder, model)
        compute = compute.resumed(folder.config["run"])
        code = {"task": task, "objective": objective, "example_input": example_input}
        with _prepared_again(folder, model, train, test, watch, compute, **code) as job:
            watch.tracking.follow(folder)
            result = run(job, folder)
    watch.conclude(run_dir, track)
    return advised(result)


def pick(
    run_dir: str | Path,
    model: nn.Module | None = None,
    train: Any = None,
    test: Any = None,
    *,
    target: Limits | Mapping[str, Any] | str,
    replace: bool = False,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
) -> Solution:
    """Choose the candidate of a finished run that meets limits, fine-tune it as the run did, and save it.

    For example: `dp.pick("runs/mine", model, train, test, target={"flops": 0.3})`. A limit on the error is
    checked on a tenth of the training images, which are then not trained on. With `replace` the network
    replaces the last target of the run. The other parameters are those of `prune`.
    """
    watch, limits = Watch(observer, progress, report=report), Limits.of(target)
    with RunFolder.open(run_dir) as folder, watch.shown():
        own, search = Limits.of(folder.config.get("target")), SearchConfig.from_table(folder.config["search"])
        # With fewer images the sample of the run's own size may not be possible.
        variant = "set-aside" if limits.bounds_error and not own.bounds_error else ""
        compute = Compute(None, device, backend).alone(folder.config["run"])
        changes: dict[str, Any] = {
            "search": changed(search, sample=None) if variant else search,
            "target": limits if limits.bounds_error else own,  # images that the run has set aside stay so
        }
        code = {"task": task, "objective": objective, "example_input": example_input}
        with _prepared_again(folder, model, train, test, watch, compute, **changes, **code) as job:
            solution = pick_one(job, folder, limits, variant=variant, instead=replace)
    watch.write_report(run_dir)
    return solution


def finetune(
    run_dir: str | Path | Solution,
    model: Any = None,
    train: Any = None,
    test: Any = None,
    *,
    candidate: int | None = None,
    finetune: FinetuneConfig | None = None,
    threads: int | None = None,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
) -> Solution:
    """Fine-tune any candidate of a run, by its id, and save it in the run folder as candidate-ID.

    For example: `dp.finetune("runs/mine", model, train, test, candidate=57)`. The run's own options are
    used unless `finetune` or `threads` are given; a call that was stopped continues where it was. The other
    parameters are those of `prune`.

    Without labels: `dp.finetune(front.at(flops=0.4), inputs)` trains a network of `dp.search` to give the
    outputs of its original, on inputs as `dp.search` takes them, and returns it as a solution that is not
    saved. Every tenth input is held out, from a refit before the training as well: if the outputs there drift
    no less after the training, the network keeps its weights, and `refitted` is true. Of `finetune`, what
    concerns labels and augmentation is not used. It takes thousands of inputs to improve on a refit.
    """
    if isinstance(run_dir, Solution):
        return _finetune_by_imitation(run_dir, model, finetune, device, threads)
    if candidate is None:
        raise InputError("which candidate of the run? give its id: candidate=57")
    watch = Watch(observer, progress, report=report)
    with RunFolder.open(run_dir) as folder, watch.shown():
        search = SearchConfig.from_table(folder.config["search"])
        recorded = FinetuneConfig.from_table(folder.config["finetune"])
        options = recorded if finetune is None else checked(FinetuneConfig, finetune).settled()
        cores = threads or search.threads
        compute = Compute(None, device, backend).alone(folder.config["run"])
        changes: dict[str, Any] = {
            "search": changed(search, threads=cores),
            "finetune": finetune if task else options,
        }
        code = {"task": task, "objective": objective, "example_input": example_input}
        table = options.to_table()
        # Version 1.0.0 named folders by tables without features.
        named = {name: value for name, value in table.items() if (name, value) != ("features", 0.0)}
        described = json.dumps([named, cores], sort_keys=True)
        digest = hashlib.sha256(described.encode()).hexdigest()[:8]
        variant = "" if (options, cores) == (recorded, search.threads) else digest
        with _prepared_again(folder, model, train, test, watch, compute, **changes, **code) as job:
            solution = finetune_one(job, folder, candidate, variant=variant)
        if variant and task is None:
            name = f"{solution.role}/{digest}"
            folder.history.set_fact(facts.training_fact(name), {**table, "threads": cores})
    watch.write_report(run_dir)
    return solution


def _finetune_by_imitation(
    solution: Solution, inputs: Any, finetune: FinetuneConfig | None, device: str, threads: int | None
) -> Solution:
    """The solution of a search without labels, trained to imitate its original."""
    if solution.search is None:
        raise InputError(
            f"{solution!r} is not of dp.search: fine-tune a run's network by its folder and candidate"
        )
    if inputs is None:
        raise InputError("inputs are needed to learn from: dp.finetune(front.at(flops=0.4), inputs)")
    options = checked(FinetuneConfig, finetune)
    if not options.trains:
        return solution
    context, genome = solution.search, solution.genome
    with torch_threads(SearchConfig(threads=threads).threads if threads is not None else available_threads()):
        done = imitate(
            solution.model,
            original_network(context),
            solution.recipe,
            lambda some: refit_again(context.graph, genome, some, context.memory),
            gather_inputs(inputs, MOST_IMITATED, MOST_IMITATED_BYTES),
            options,
            device=str(choose_device(device)),
        )
    if not done.helped:
        warnings.warn(f"{done}; {done.advice}", stacklevel=3)
    setattr(done.model, CANDIDATE_MARK, solution.id)
    return changed(solution, network=done.model, refitted=not done.helped, lr_factor=done.lr_factor)


@contextmanager
def _prepared_again(
    folder: RunFolder,
    model: nn.Module | None,
    train: Any,
    test: Any,
    watch: Watch,
    compute: Compute,
    *,
    search: SearchConfig | None = None,
    finetune: FinetuneConfig | None = None,
    target: Limits | None = None,
    task: Any,
    **code: Any,
) -> Iterator[Job]:
    """The job of a run, prepared again by the options it recorded, except for those given; and shown."""
    config = folder.config
    if finetune is None and task is None:
        finetune = FinetuneConfig.from_table(config["finetune"])
    job = prepare(
        _original_of_run(folder, model),
        train,
        test,
        search=search or SearchConfig.from_table(config["search"]),
        finetune=finetune,
        target=Limits.of(config.get("target")) if target is None else target,
        task=task,
        history=folder.history,
        compute=compute,
        observer=watch,
        **code,
    )
    with job.backend:
        watch.work_on(job.backend)
        yield job


def _original_of_run(folder: RunFolder, model: nn.Module | None) -> nn.Module:
    """The network that the run prunes: the one given, or its class with the weights that the run holds."""
    held = (folder.path / FINETUNE / f"{ORIGINAL}.safetensors").is_file()
    if model is not None and (not held or is_same_network(folder, model)):
        check_same_network(folder, model)
        return model
    if not held:
        raise InputError(f"{folder.path} does not hold its original network yet; give it as model")
    return read_network(folder.path, ORIGINAL, model=model).model


def report(run_dir: str | Path) -> Path:
    """Write the page of a run, report.html, and its plots into its folder, and return the page's path.

    For example: `dp.report("runs/mine")`. A run that is not finished has a page as well.
    """
    return write_report(run_dir)


def export(
    run_dir: str | Path | AtHand,
    model: nn.Module | None = None,
    *,
    solution: str = KNEE,
    format: str = "onnx",
    out: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    int8: bool = False,
    calibration: Any = None,
    test: Any = None,
    example_input: Tensor | None = None,
) -> ExportedFile:
    """Write a network as ONNX, torch-export, safetensors or hub folder, its outputs compared with PyTorch's.

    For example: `dp.export("runs/mine", MyNet()).path`. `solution` is a role, "original", or "candidate-57"
    once that is fine-tuned; `normalize` includes the normalisation, so that the file takes pixels of 0..255.
    Instead of a run folder, a result or a front can be given (`dp.export(front, out="thin.onnx")`), or a
    network: `result.best(flops=0.4)`, `front.best(flops=0.4)`, any module with its `example_input`.

    `int8` quantises an ONNX file, which is calibrated on the sample of the search where the run records its
    data, else on `calibration`: a tensor of inputs as the file takes them, or images as `prune` takes them.
    The test error of both is measured on the run's test images, or on `test`.
    """
    written = export_network(
        run_dir,
        solution,
        format_=format,
        out=out,
        normalize=normalize,
        tolerance=tolerance,
        int8=int8,
        material=_calibration_images(calibration, test),
        model=model,
        example_input=example_input,
    )
    for note in written.notes:
        warnings.warn(note, stacklevel=2)
    folder = run_of(run_dir)
    if int8 and folder is not None and not written.notes:
        Watch().write_report(folder)
    return written


def bench(
    run_dir: str | Path | AtHand,
    model: nn.Module | None = None,
    *,
    batches: Iterable[int] = (1, 32),
    rounds: int | None = None,
    threads: int = 1,
    device: str = "auto",
    int8: bool = False,
    calibration: Any = None,
    test: Any = None,
    example_input: Tensor | None = None,
) -> BenchFigures:
    """Measure the original and the solutions of a run side by side; the figures print as tables.

    For example: `print(dp.bench("runs/mine", MyNet(), batches=(1, 64)))`. They are kept in the run, and its
    page is written again. `int8`, `calibration` and `test` as in `export`; int8 files that were exported into
    the run are always measured. Instead of a run folder, a result, a front or a network can be given as in
    `export`; it is compared with the original: that of its search, or `model`.
    """
    figures = bench_networks(
        run_dir,
        batches=batches,
        rounds=rounds,
        threads=threads,
        device=device,
        int8=int8,
        material=_calibration_images(calibration, test),
        model=model,
        example_input=example_input,
    )
    if isinstance(run_dir, Result):
        run_dir = run_dir.run_dir
    if not isinstance(run_dir, (str, Path)):
        return figures
    reason = keep_figures(run_dir, figures)
    if reason:
        warnings.warn(f"not kept in the run: {reason}", stacklevel=2)
    else:
        write_report(run_dir)
    return figures


def _calibration_images(calibration: Any, test: Any) -> MaterialSource | None:
    """The images that int8 is calibrated and tested on, if any are given."""
    given = calibration is not None or test is not None
    return MaterialSource(calibration=calibration, test=test) if given else None
