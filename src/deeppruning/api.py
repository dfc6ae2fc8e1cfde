"""The whole job from Python: `prune` starts it, `resume` goes on with it, `search` leaves training to others.

`compare` asks other methods for networks of the same size.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from deeppruning.backends import Backend
from deeppruning.backends.limits import Timeout
from deeppruning.comparison import USUAL, Comparison, compare_methods, usable_methods
from deeppruning.comparison.events import RivalObserver
from deeppruning.comparison.setup import Match, make_rivalry, open_comparison
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig
from deeppruning.display.watching import rivals_watched, watched
from deeppruning.errors import InputError
from deeppruning.graph.calls import as_call, part_of
from deeppruning.jobs.front import Front
from deeppruning.jobs.job import Job, check_same_network, execute, hash_network
from deeppruning.jobs.prepare import Setup
from deeppruning.jobs.result import Result
from deeppruning.limits import Limits
from deeppruning.objectives import Objective
from deeppruning.reporting import write_report_or_warn
from deeppruning.reporting.plots import candidates_markup
from deeppruning.reporting.recommendation import recommend
from deeppruning.runs import RunFolder
from deeppruning.runs.history import History
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.searching.evaluations import EVALUATIONS
from deeppruning.searching.events import CandidateRefused, Observer, Started, ignore
from deeppruning.searching.gathering import gather_inputs
from deeppruning.searching.loop import search as run_search
from deeppruning.searching.proving import Proofs
from deeppruning.searching.task import Task
from deeppruning.searching.unlabelled import Unlabelled
from deeppruning.system.arguments import check_arguments
from deeppruning.system.device import workers_here
from deeppruning.targets.aiming import aimed, refuse_unreachable, with_objective
from deeppruning.targets.planning import planned
from deeppruning.targets.widths import widths_line, with_fast_widths


@check_arguments
def prune(
    model: nn.Module,
    train: Any = None,
    test: Any = None,
    *,
    run_dir: str | Path,
    search: SearchConfig | None = None,
    finetune: FinetuneConfig | None = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    target: Limits | Mapping[str, Any] | str | None = None,
) -> Result:
    """Search for thin versions of `model` and fine-tune the three picks; the model itself stays as it is.

    `train` and `test` are image sets, (images, labels) pairs, torch Datasets or DataLoaders; the last two
    are read batch by batch. The result does not depend on `workers`, by default as many as the cores that
    this process may use have room for. `task` is your own way to train and judge, in place of train, test and
    finetune; it needs `example_input`.
    `objective` is a function of the thin network in place of FLOPs, `backend` a RayBackend for a cluster,
    `candidate_timeout` the seconds until a worker counts as hung ("auto": 20 times the median so far;
    "off"). `observer` is told of all that happens. `progress` is shown in terminals and notebooks unless it
    is False, elsewhere only if it is True; `report` writes the run's page and plots at the end.
    `tables` are further tables for the run's config.toml.

    `target` are limits, {"flops": 0.4} or {"size": "1MB", "latency": "5ms", "error": "+1%"}: the search
    spends its effort near them, and result.target is the network that meets them (see docs/targets.md).
    """
    limits = Limits.of(target)
    options = with_objective(search or SearchConfig(), limits if objective is None else Limits())
    setup = Setup(
        model=model,
        train=train,
        test=test,
        search=options,
        finetune=finetune,
        workers=workers,
        device=device,
        backend=backend,
        candidate_timeout=candidate_timeout,
        task=task,
        objective=objective,
        example_input=example_input,
        observer=observer,
        target=limits,
    )
    job = setup.job()
    refuse_unreachable(job)
    job = aimed(planned(with_fast_widths(job)))
    setup.check_patterns(job.context.graph)
    _warn_of(setup, idle=tables is None)  # of idle options the command line says so itself
    config = _config(job, setup, device, tables or {})
    with job.backend, RunFolder.create(run_dir, config) as run, watched(job, progress) as shown:
        result = execute(shown, run)
    if report:
        write_report_or_warn(run_dir)
    return _advised(result)


def _advised(result: Result) -> Result:
    """The result with what a report knows beyond it: the network to take, and a plot for a notebook."""
    with RunFolder.open(result.run_dir, read_only=True) as run:
        found = recommend(run.history.facts())
    if found is None:
        return replace(result, plot=candidates_markup)
    return replace(result, plot=candidates_markup, advice=found.text, advised=found.role)


def _warn_of(setup: Setup, *, idle: bool) -> None:
    """Tell a caller of `prune` what is not as it may seem."""
    if setup.sample_note:
        warnings.warn(setup.sample_note, stacklevel=4)
    if idle and setup.search.idle():
        warnings.warn(
            f"no effect with strategy {setup.search.strategy} and evaluation {setup.search.evaluation}: "
            f"{', '.join(setup.search.idle())}; SearchConfig.paper(...) is the search that has them",
            stacklevel=4,
        )


def _config(
    job: Job, setup: Setup, device: str, tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The tables of the run's config.toml."""
    timeout = {} if setup.candidate_timeout is None else {"candidate_timeout": setup.candidate_timeout}
    config: dict[str, dict[str, Any]] = {
        "search": job.search.to_table(),
        "finetune": setup.tuning.to_table(),
        **({"target": job.target.to_table()} if job.target else {}),
        "run": {"workers": setup.worker_count, "device": device, **timeout},
        **{name: dict(table) for name, table in tables.items()},
    }
    config["model"] = {**config.get("model", {}), "fingerprint": hash_network(job.model)}
    return config


@check_arguments
def resume(
    run_dir: str | Path,
    model: nn.Module,
    train: Any = None,
    test: Any = None,
    *,
    workers: int | None = None,
    device: str | None = None,
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    task: Task | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    example_input: Any = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    report: bool = True,
) -> Result:
    """Go on with a run that was stopped, to the very result it would have had.

    The options come from its folder; model, data and whatever else is code must be given again. `progress`
    and `report` as in `prune`.
    """
    with RunFolder.open(run_dir) as run:
        check_same_network(run, model)
        table = run.config["run"]
        if backend is None and candidate_timeout is None:
            candidate_timeout = table.get("candidate_timeout")
        setup = Setup(
            model=model,
            train=train,
            test=test,
            search=SearchConfig.from_table(run.config["search"]),
            finetune=None if task else FinetuneConfig.from_table(run.config["finetune"]),
            workers=workers_here(table.get("workers")) if workers is None else workers,
            device=device or table["device"],
            backend=backend,
            candidate_timeout=candidate_timeout,
            task=task,
            objective=objective,
            example_input=example_input,
            observer=observer,
            target=Limits.of(run.config.get("target")),
        )
        job = setup.job()
        with job.backend, watched(job, progress) as shown:
            result = execute(shown, run)
    if report:
        write_report_or_warn(run_dir)
    return _advised(result)


@check_arguments
def search(
    model: nn.Module,
    inputs: Any,
    *,
    search: SearchConfig | None = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
) -> Front:
    """Search for thin versions of `model` by inputs alone: no labels, no training, nothing on disk.

    `inputs` is a tensor, a tuple of arguments or a dict of named ones with a batch, nested as you like, or a
    Dataset or DataLoader (`search.sample` entries of it are taken, and of an entry that is a pair the first
    part). Candidates are refitted on some of the inputs and judged on the others by how far their outputs
    drift from the original's. `front.at(flops=0.4).model` then is the best one within 40 % of the FLOPs,
    ready to be used or trained in your own loop; `front.save(model, path)` writes it as a run would.
    """
    options = search or SearchConfig()
    if not EVALUATIONS.find(options.evaluation).refits:
        raise InputError(
            f"a search by inputs alone judges candidates after a refit, not by {options.evaluation!r}: there "
            "are no labels to train or count by; leave out evaluation, or use prune"
        )
    batch = gather_inputs(inputs, options.sample or USUAL_SAMPLE)
    args, kwargs = part_of(as_call(batch), slice(1))
    setup = Setup(
        model=model,
        search=options,
        workers=workers,
        device=device,
        backend=backend,
        candidate_timeout=candidate_timeout,
        task=Unlabelled(model, batch),
        objective=objective,
        example_input=kwargs or args,
        observer=observer,
    )
    job = planned(with_fast_widths(setup.job()))
    setup.check_patterns(job.context.graph)
    options, graph = job.search, job.context.graph
    full = graph.full_genome()
    costs = graph.flops(full), graph.params(full)
    with ExitStack() as stack:
        stack.enter_context(job.backend)
        folder = stack.enter_context(scratch_folder())
        history = stack.enter_context(History(folder / "history.sqlite"))
        tell = stack.enter_context(watched(job, progress)).observer
        widths = widths_line(options.round_to, job.measured)
        counts = graph.num_genes, options.generations, options.evaluations
        tell(Started(str(folder), *counts, 0, None, *costs, widths))
        proofs = Proofs(job.context, tell=lambda one, why: tell(CandidateRefused(one.id, why)))
        picks = run_search(job.context, options, history, job.backend, tell, proofs)
        candidates = history.candidates()
    return Front(candidates, picks, job.context, proofs.after_run(), *costs, job.description)


@check_arguments
def compare(
    model: nn.Module,
    train: Any,
    test: Any,
    *,
    methods: str | Sequence[str] = USUAL,
    match: str | Path | None = None,
    shares: Sequence[float] = (),
    seeds: int = 1,
    images: int | None = None,
    test_images: int | None = None,
    run_dir: str | Path | None = None,
    search: SearchConfig | None = None,
    finetune: FinetuneConfig | None = None,
    workers: int | None = None,
    device: str | None = None,
    backend: Backend | None = None,
    candidate_timeout: Timeout | None = None,
    example_input: Any = None,
    observer: RivalObserver = ignore,
    progress: bool | None = None,
) -> Comparison:
    """Ask other methods for networks of given FLOPs and fine-tune all of them alike.

    The FLOPs are those of the picks of the run `match`, which take part, or `shares` of the original's
    (0.5 is half of it). Options of search and fine-tuning are those of that run, unless others are
    given for the latter; a comparison can be kept short by class-balanced parts of the data: so many
    `images` to fine-tune on, so many `test_images` to measure errors on.
    Everything is kept in `run_dir` (the folder "compare" of the run by default), and the same call
    goes on where it was stopped; more methods or seeds may be added later. `observer` and `progress`: as
    in `prune`; what is shown is a line a method, and the outcome prints as a table.
    """
    matched = Match.read(match, model) if match is not None else None
    methods, note = usable_methods(methods)
    if note:
        warnings.warn(note, stacklevel=3)
    if matched is not None and (search is not None or shares):
        raise InputError("search options and FLOPs of a comparison come from the run it is matched to")
    folder = run_dir if run_dir is not None else match and Path(match) / "compare"
    if folder is None:
        raise InputError("a comparison needs a folder: give run_dir, or a run to match")
    setup = Setup(
        model=model,
        train=train,
        test=test,
        search=search or (matched.search if matched else SearchConfig()),
        finetune=finetune or (matched.finetune if matched else FinetuneConfig()),
        workers=workers,
        device=device or (matched.device if matched else "auto"),
        backend=backend,
        candidate_timeout=candidate_timeout,
        example_input=example_input,
    )
    rivalry = make_rivalry(
        setup,
        methods=methods,
        shares=shares,
        match=matched,
        seeds=seeds,
        images=images,
        test_images=test_images,
        observer=rivals_watched(observer, progress),
    )
    if setup.sample_note:
        warnings.warn(setup.sample_note, stacklevel=3)
    config = {
        "targets": [target.name for target in rivalry.targets],
        "flops": [target.flops for target in rivalry.targets],
        "images": images,
        "test_images": test_images,
        "search": setup.search.to_table(),
        "finetune": setup.tuning.to_table(),
        "model": hash_network(model),
        "data": rivalry.data_fingerprint(),
    }
    with rivalry.backend, open_comparison(folder, config) as run:
        return compare_methods(rivalry, run)
