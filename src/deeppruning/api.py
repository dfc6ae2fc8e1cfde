"""The calls on a network: `prune`, `search` without labels, `cut` without a search, `compare` with others."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from deeppruning.backends import Backend
from deeppruning.comparison import USUAL, Comparison, compare_methods
from deeppruning.comparison.prepare import Match, comparable, open_comparison, prepare_comparison
from deeppruning.comparison.results import ComparisonObserver
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig
from deeppruning.display.watching import Watch, watch_comparison
from deeppruning.errors import InputError, RunError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call, part_of
from deeppruning.jobs.prepare import Compute, Job, check_patterns, checked, prepare
from deeppruning.jobs.result import Front, Result
from deeppruning.jobs.run import run
from deeppruning.latency import Conditions
from deeppruning.limits import Limits
from deeppruning.objectives import Objective
from deeppruning.refitting import refit
from deeppruning.reporting.plots import candidates_markup
from deeppruning.reporting.recommendation import recommend
from deeppruning.runs import History, RunFolder
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.searching.events import Observer, Remark, Stage, Started, ignore
from deeppruning.searching.importance import CRITERIA, Evidence, order_by
from deeppruning.searching.loop import search as run_search
from deeppruning.searching.proving import Proofs
from deeppruning.searching.task import Task
from deeppruning.searching.unlabelled import Unlabelled, check_needs_no_labels, gather_inputs
from deeppruning.targets.aiming import refuse_unreachable, widths_line, within
from deeppruning.targets.choice import CostMeter
from deeppruning.tracking import Track, Tracking
from deeppruning.training.tensors import hash_tensors


def prune(
    model: nn.Module,
    train: Any = None,
    test: Any = None,
    *,
    run_dir: str | Path,
    search: SearchConfig | None = None,
    finetune: FinetuneConfig | None = None,
    target: Limits | Mapping[str, Any] | str | None = None,
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
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> Result:
    """Search for thin versions of `model` and fine-tune the three picks; the model itself is not changed.

    `train` and `test` are image sets, (images, labels) pairs, torch Datasets or DataLoaders; the last two
    are read batch by batch. `task` replaces train, test and finetune by your own training and evaluation;
    it needs `example_input`. `objective` is a function of the thin network to minimise instead of the FLOPs.

    `target` sets limits, {"flops": 0.4} or {"size": "1MB", "latency": "5ms", "error": "+1%"}: the search
    concentrates near them, and `result.target` is the network that meets them (see docs/targets.md).

    The result does not depend on `workers` (default: as many as there are cores) unless minutes end the
    search, nor on `device` ("auto": a GPU if there is one; in calls on a run, the device it recorded) or
    `backend` (a RayBackend for a cluster, a PoolBackend for another time limit per candidate). `observer`
    receives all events. `progress` is shown in terminals and notebooks unless it is False, elsewhere only if
    it is True; `report` writes the run's page and plots at the end. `track` names trackers, "tensorboard",
    "mlflow" or "wandb", that record the run (see docs/trackers.md). `tables` are further tables for the run's
    config.toml.
    """
    watch = Watch(observer, progress, report=report, tracking=Tracking.of(track))
    with watch.shown():
        job = prepare(
            model,
            train,
            test,
            search=search,
            finetune=finetune,
            target=Limits.of(target),
            task=task,
            objective=objective,
            example_input=example_input,
            compute=Compute(workers, device, backend),
            observer=watch,
        )
        if tables is None and job.search.idle():  # the command line reports this itself
            warnings.warn(
                f"no effect with strategy {job.search.strategy} and evaluation {job.search.evaluation}: "
                f"{', '.join(job.search.idle())}; SearchConfig.paper(...) is the search that uses them",
                stacklevel=2,
            )
        config = _run_config_tables(job, tables or {})
        with job.backend, RunFolder.create(run_dir, config) as folder:
            watch.work_on(job.backend)
            watch.tracking.follow(folder)
            result = run(job, folder)
    watch.conclude(run_dir, track)
    return advised(result)


def advised(result: Result) -> Result:
    """The result with what a report adds: the network that is recommended, and a plot for a notebook."""
    with RunFolder.open(result.run_dir, read_only=True) as folder:
        advice = recommend(folder.history.facts())
    if advice is None:
        return replace(result, plot=candidates_markup)
    return replace(result, plot=candidates_markup, advice=advice.text, advised=advice.role)


def _run_config_tables(job: Job, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tables of the run's config.toml."""
    compute = job.compute
    config: dict[str, dict[str, Any]] = {
        "search": job.search.to_table(),
        "finetune": job.finetune.to_table(),
        **({"target": job.target.to_table()} if job.target else {}),
        "run": {"workers": compute.worker_count(job.search.threads), "device": compute.device},
        **{name: dict(table) for name, table in tables.items()},
    }
    config["model"] = {**config.get("model", {}), "fingerprint": hash_tensors(job.model.state_dict())}
    return config


def search(
    model: nn.Module,
    inputs: Any,
    *,
    search: SearchConfig | None = None,
    target: Limits | Mapping[str, Any] | str | None = None,
    objective: Objective | str | Callable[[nn.Module], float] | None = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
    track: Track = None,
) -> Front:
    """Search for thin versions of `model` by inputs alone: no labels, no training, nothing on disk.

    `inputs` is a batch as the network is called with it (a tensor, a tuple of arguments or a dict of named
    ones, nested as you like), or a Dataset or DataLoader, of which `search.sample` entries are taken, without
    their labels. Candidates are refitted on some of the inputs and evaluated on the others by how far
    their outputs drift from the original's. `front.best(flops=0.4).model` is the best one within 40 % of the
    FLOPs, ready to be used or trained in your own loop; `front.save(model, path)` writes it as a run would.
    With a `target` of costs, as in `prune`, the search concentrates near it; `track` is that of `prune`.
    """
    options, limits = checked(SearchConfig, search), Limits.of(target)
    check_needs_no_labels(options)
    if limits.bounds_error:
        raise InputError(f"a search by inputs alone has no labels to check {limits} by; limit a cost instead")
    watch = Watch(observer, progress, tracking=Tracking(track))
    with ExitStack() as stack:
        stack.enter_context(watch.shown())
        watch(Stage("data"))
        task = Unlabelled.of(model, gather_inputs(inputs, options.sample or USUAL_SAMPLE))
        args, kwargs = part_of(as_call(task.inputs), slice(1))
        job = prepare(
            model,
            search=options,
            target=limits,
            task=task,
            objective=objective,
            example_input=kwargs or args,
            compute=Compute(workers, device, backend),
            observer=watch,
        )
        context, graph = job.context, job.context.graph
        full = graph.full_genome()
        costs = graph.flops(full), graph.params(full)
        watch.work_on(stack.enter_context(job.backend))
        watch.tracking.follow_search(job.search.to_table())
        folder = stack.enter_context(scratch_folder())
        history = stack.enter_context(History(folder / "history.sqlite"))
        widths = widths_line(job.search.round_to, job.multiples)
        generations = job.search.generations
        counts = graph.num_genes, generations, job.search.evaluations if generations else None
        watch(Started(str(folder), *counts, 0, None, *costs, widths))
        proofs = Proofs.of_run(context, history, watch)
        near = within(graph, limits, context.plan)
        picks = run_search(context, job.search, history, job.backend, watch, proofs, near)
        candidates = history.candidates()
    watch.tracking.finish()
    meter = CostMeter(context, Conditions.of(job.search, context.device), proofs.after_run())
    return Front.of_search(candidates, dict(picks.items()), meter, job.description)


def cut(
    model: nn.Module,
    example_input: Any,
    *,
    flops: float | str | None = None,
    params: float | str | None = None,
    size: float | str | None = None,
    by: str = "l1",
    inputs: Any = None,
    exclude: Sequence[str] = (),
    round_to: int | None = 1,
    prune_linear: bool = False,
    prune_heads: bool = False,
) -> nn.Module:
    """Cut `model` once, without a search, and return the thin network, ready to be trained.

    For example: `thin = dp.cut(model, example_input, flops=0.5, by="l1")`. The same share of every layer is
    removed, starting with the filters that matter least by the criterion `by`, until every limit is met: a
    share of the original's (0.5, "50%") or a number ("100k" parameters, a size of "1MB"). The cut is proven.
    With `inputs` (a batch, Dataset or DataLoader; no labels are needed) the network is also refitted on
    them, which keeps much more of its accuracy. `exclude`, `round_to`, `prune_linear` and
    `prune_heads` are those of `ChannelGraph`.
    """
    given = {"flops": flops, "params": params, "size": size}
    limits = Limits.of({name: limit for name, limit in given.items() if limit is not None})
    graph = ChannelGraph(
        model,
        example_input,
        exclude=exclude,
        round_to=round_to,
        prune_linear=prune_linear,
        prune_heads=prune_heads,
    )
    check_patterns(tuple(exclude), model, graph)
    used = within(graph, limits, None)
    if used is None:
        raise InputError('say how much stays: for example flops=0.5, params="100k" or size="1MB"')
    refuse_unreachable(graph, limits)
    full = graph.full_genome()
    batch = None if inputs is None else gather_inputs(inputs, USUAL_SAMPLE)
    order = order_by(CRITERIA.find(by), Evidence(graph, graph.prune(full), inputs=batch))

    def without(filters: int) -> Genome:
        genome = full.copy()
        genome[order[:filters]] = False
        return np.asarray(graph.repair(genome))

    too_few, enough = 0, len(order)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if used(without(middle)[None])[0] <= 1.0:
            enough = middle
        else:
            too_few = middle
    genome = without(enough)
    fault = graph.fault(genome)
    if fault:
        raise RunError(f"the cut is not proven: {fault}; leave out the layers before it (exclude=...)")
    thin = graph.prune(genome) if batch is None else refit(graph, genome, batch)
    return thin.train(model.training)


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
    example_input: Any = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: ComparisonObserver = ignore,
    progress: bool | None = None,
) -> Comparison:
    """Ask other methods for networks of the same FLOPs and fine-tune all of them alike.

    The FLOPs are those of the picks of the run `match`, which take part, or `shares` of the original's
    (0.5 is half). The options of search and fine-tuning are those of that run, unless others are given for
    fine-tuning. To keep a comparison short, `images` and `test_images` limit the number of images for
    fine-tuning and for testing, balanced by class. Everything is kept in `run_dir` (by default the folder
    "compare" of the run), and the same call continues where it was stopped; methods and seeds can be added
    later. The other parameters are those of `prune`; progress is a line per method, and the result prints as
    a table.
    """
    matched = Match.read(match, model) if match is not None else None
    if matched is not None and (search is not None or shares):
        raise InputError("search options and FLOPs of a comparison come from the run it is matched to")
    path = run_dir if run_dir is not None else match and Path(match) / "compare"
    if path is None:
        raise InputError("a comparison needs a folder: give run_dir, or a run to match")
    if device == "auto" and matched is not None:
        device = matched.device
    watch = watch_comparison(observer, progress)
    job = prepare(
        model,
        train,
        test,
        search=comparable(checked(SearchConfig, matched.search if matched else search)),
        finetune=finetune or (matched.finetune if matched else None),
        example_input=example_input,
        compute=Compute(workers, device, backend),
        measure=False,
    )
    plan = prepare_comparison(
        job,
        matched,
        watch,
        methods=methods,
        shares=shares,
        seeds=seeds,
        images=images,
        test_images=test_images,
    )
    if job.sample_note:
        watch(Remark("sample", job.sample_note))
    config = {**plan.config(), "images": images, "test_images": test_images}
    with job.backend, open_comparison(path, config) as folder:
        return compare_methods(plan, folder)
