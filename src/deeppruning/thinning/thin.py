"""`dp.thin`: search, refit and export of an ONNX file in one call, without labels and without training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from deeppruning import api, api_runs
from deeppruning.backends import Backend
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig
from deeppruning.errors import InputError, RunError
from deeppruning.exporting import export_network
from deeppruning.importing.building import SUPPORTED
from deeppruning.importing.file import OnnxFile, read_onnx
from deeppruning.importing.network import OnnxNetwork
from deeppruning.importing.onnx import from_file
from deeppruning.jobs.imitating import Imitated, check_enough, imitate, refit_again
from deeppruning.jobs.prepare import prunable_graph
from deeppruning.jobs.result import Result
from deeppruning.jobs.solution import Solution
from deeppruning.jobs.targeting import Unmet
from deeppruning.limits import Limits
from deeppruning.refitting.probing import FEWEST
from deeppruning.roles import TARGET
from deeppruning.runs.facts import FINISHED, TASK
from deeppruning.runs.folder import CONFIG, FINETUNE, RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.searching.events import Observer, Remark, ignore
from deeppruning.searching.unlabelled import check_needs_no_labels
from deeppruning.system.device import available_threads, choose_device, torch_threads
from deeppruning.system.files import folder_within, plain_name
from deeppruning.targets.choice import pareto_front, thin_candidates
from deeppruning.thinning.asked import check_out, split_target
from deeppruning.thinning.inputs import NamedInputs, PictureOptions, count_of, read_inputs, rows_of
from deeppruning.thinning.measuring import Drift, SideBySide, measure_drift, measure_latency, seconds_of
from deeppruning.thinning.outcome import Thinned, front_rows
from deeppruning.thinning.pictures import form_of, stated_size
from deeppruning.thinning.task import Thinning

HELD_OUT = 5  # every fifth input, at most:
MOST_HELD_OUT = 256
MOST_BYTES = 1 << 30  # of all inputs


def thin(
    path: str | Path,
    inputs: Any,
    *,
    target: Limits | Mapping[str, Any] | str,
    out: str | Path,
    pictures: PictureOptions | None = None,
    search: SearchConfig | None = None,
    tune_minutes: float | None = None,
    run_dir: str | Path | None = None,
    workers: int | None = None,
    device: str = "auto",
    backend: Backend | None = None,
    observer: Observer = ignore,
    progress: bool | None = None,
) -> Thinned:
    """Thin an ONNX file by inputs alone, and write the result as an ONNX file of the same interface.

    For example: `dp.thin("detector.onnx", "photos/", target="flops=70%", out="thin.onnx")`. No labels are
    needed and nothing is trained: filters are removed by a search, the others refitted in closed form, so
    that the outputs stay as they were. `inputs` is a folder of pictures (see `pictures`), an .npz or .npy
    file, "file.py:function", or what `dp.search` takes. `target` limits the cost: flops, params, size or
    latency, the latter as a time or as a share of the file's own, "latency=60%".

    With `tune_minutes` the chosen network is then trained for that long to give the outputs of the original;
    it keeps its refitted weights if that does not help on every tenth input, which is held out from it.
    That takes thousands of inputs.

    Every fifth input is held out: the drift of the outputs is measured on those, in onnxruntime, and the
    latency of both files side by side. The file is written only after its outputs were compared with the thin
    network's. The search is kept in `run_dir` (by default runs/NAME-thin), with a page: a call that was
    stopped continues there, and another target is taken from the search that is there.
    """
    path, out = Path(path), Path(out)
    limits, latency_share = split_target(target)
    tuning = None if tune_minutes is None else FinetuneConfig(minutes=tune_minutes)
    check_out(path, out)
    options = replace(search or SearchConfig(), latency_runtime="onnxruntime")
    check_needs_no_labels(options)
    file = read_onnx(path, SUPPORTED)
    if file.is_half and limits.size is not None and limits.size > 1:
        # Networks are compared in single precision, in which weights are twice as large.
        limits = replace(limits, size=2 * limits.size)
        observer(Remark("sample", f"{path.name} is in half precision; in single precision that is {limits}"))
    network, used, held = _prepared(file, inputs, pictures or PictureOptions(), options.sample, observer)
    if tuning is not None:
        check_enough(count_of(used))
    if latency_share is not None:
        measured = seconds_of(path, used, batch=options.latency_batch, threads=options.latency_threads)
        limits = replace(limits, latency=float(f"{measured * latency_share:.4g}"))
        observer(Remark("sample", f"{path.name} takes {1000 * measured:.2f} ms; the target is {limits}"))
    folder = Path(run_dir) if run_dir is not None else Path("runs") / f"{plain_name(path.stem)}-thin"
    source = str(inputs) if isinstance(inputs, (str, Path)) else "from Python"
    job = _Job(path, network, _task(network, used, held), limits, folder, source, file.bytes)
    where = {"device": device, "backend": backend, "observer": observer, "progress": progress}
    solution, candidates = job.run(search, options, workers, where)
    tuned = ""
    if tuning is not None:
        observer(Remark("sample", f"tuning the network for {tuning.minutes:g} minutes"))
        with torch_threads(available_threads()):
            done = job.tuned(solution, tuning, str(choose_device(device)))
        solution, tuned = replace(solution, network=done.model, refitted=not done.helped), str(done)
    written = _written(job, path, out, solution, candidates, held, options)
    return replace(written, tuned=tuned)


def _prepared(
    file: OnnxFile, source: Any, pictures: PictureOptions, sample: int | None, observer: Observer
) -> tuple[OnnxNetwork, NamedInputs, NamedInputs]:
    """The network, the inputs to search with and those that are held out."""
    used = sample or USUAL_SAMPLE
    if isinstance(source, (str, Path)) and Path(source).is_dir() and len(file.inputs) == 1:
        form = form_of(file.inputs[0], pictures)
        stated = stated_size(file.metadata) if form.guessed_size else None
        if stated is not None:
            pictures = replace(pictures, image_size=stated)
            form = form_of(file.inputs[0], pictures)
        observer(Remark("sample", f"pictures as {file.inputs[0].name!r}: {form}"))
        if form.guessed_size:
            observer(Remark("sample", "the file leaves their size open; if it is another: --image-size"))
        bytes_each = form.size[0] * form.size[1] * form.channels * 4
        used = min(used, max(2 * FEWEST, MOST_BYTES // bytes_each)) if sample is None else used
    held = min(used // (HELD_OUT - 1), MOST_HELD_OUT)
    inputs = read_inputs(source, file.inputs, pictures, used + held)
    count = count_of(inputs)
    if count < 2 * FEWEST + 1:
        raise InputError(
            f"{2 * FEWEST + 1} inputs are needed at least, to refit on, to judge by and to hold out; "
            f"got {count}. A few hundred are better"
        )
    every = max(HELD_OUT, -(-count // MOST_HELD_OUT))
    chosen = torch.arange(count) % every == every - 1
    batch = next(
        (value.shape[0] for value in file.inputs if value.shape and isinstance(value.shape[0], int)), 2
    )
    network = from_file(file, rows_of(inputs, slice(batch)))
    return network, rows_of(inputs, ~chosen), rows_of(inputs, chosen)


def _task(network: OnnxNetwork, used: NamedInputs, held: NamedInputs) -> Thinning:
    """The task of the search: some inputs are used, others held out."""
    single = len(network.input_names) == 1
    whole, others = (next(iter(each.values())) if single else each for each in (used, held))
    return Thinning(network, whole, held_out=others)


@dataclass(frozen=True)
class _Job:
    """A network to be thinned in a run folder."""

    path: Path
    network: OnnxNetwork
    task: Thinning
    limits: Limits
    folder: Path
    inputs: str  # where they came from
    bytes_before: int  # of the file

    @property
    def example(self) -> Any:
        """One input."""
        whole = self.task.inputs
        return {name: tensor[:1] for name, tensor in whole.items()} if isinstance(whole, dict) else whole[:1]

    def run(
        self, given: SearchConfig | None, options: SearchConfig, workers: int | None, where: dict[str, Any]
    ) -> tuple[Solution, list[Candidate]]:
        """The network within the limits, out of a new search or one that is in the folder."""
        same = {"task": self.task, "example_input": self.example}
        if not (self.folder / CONFIG).exists():
            result = api.prune(
                self.network, run_dir=self.folder, search=options, target=self.limits, workers=workers,
                tables={"model": {"spec": str(self.path.absolute())}, "thin": {"inputs": self.inputs}},
                **same, **where,
            )  # fmt: skip
            return self._chosen(result), list(result.candidates)
        with RunFolder.open(self.folder, read_only=True) as run:
            finished = bool(run.history.get_fact(FINISHED, False))
            searched, target = (
                SearchConfig.from_table(run.config["search"]),
                Limits.of(run.config.get("target")),
            )
            inputs = run.history.get_fact(TASK)
        self._refuse_other(searched, given)
        if inputs not in (None, self.task.fingerprint()):
            raise RunError(
                f"{self.folder} holds a search with other inputs, or the same ones prepared otherwise; "
                "choose another folder (--run), or give the same ones"
            )
        observer: Observer = where["observer"]
        if not finished:
            observer(Remark("sample", f"continuing the search in {self.folder}"))
            result = api_runs.resume(self.folder, self.network, workers=workers, **same, **where)
            if target == self.limits:
                return self._chosen(result), list(result.candidates)
        observer(Remark("sample", f"the network is taken from the search in {self.folder}, near {target}"))
        try:
            solution = api_runs.pick(self.folder, self.network, target=self.limits, **same, **where)
        except Unmet as error:
            raise self._unmet(str(error).split(f"{self.limits}: ", 1)[-1]) from error
        with RunFolder.open(self.folder, read_only=True) as run:
            candidates = [row for row in run.history.candidates() if row.evaluation is not None]
        return solution, candidates

    def _chosen(self, result: Result) -> Solution:
        """The network within the limits."""
        why = result.failed.get(TARGET)
        if why:
            raise self._unmet(why)
        return result.target

    def _unmet(self, why: str) -> Unmet:
        return Unmet(
            f"target {self.limits}: {why}. Allow more, or search for longer (--generations) and near this "
            f"target in another folder (--run); {self.folder} keeps this search"
        )

    def tuned(self, solution: Solution, tuning: FinetuneConfig, device: str) -> Imitated:
        """The network after tuning; a call that was stopped continues it."""
        with RunFolder.open(self.folder, read_only=True) as run:
            searched = SearchConfig.from_table(run.config["search"])
        # The widths are settled: no multiples are measured.
        graph = prunable_graph(self.network, self.example, replace(searched, round_to=1))
        described = json.dumps([solution.id, tuning.to_table()], sort_keys=True)
        name = f"tune-{hashlib.sha256(described.encode()).hexdigest()[:8]}"
        checkpoint = folder_within(self.folder, self.folder / FINETUNE) / name
        return imitate(
            solution.model, self.network, solution.recipe,
            lambda inputs: refit_again(graph, solution.genome, inputs, searched.memory),
            self.task.inputs, tuning, device=device, checkpoint=checkpoint,
        )  # fmt: skip

    def _refuse_other(self, searched: SearchConfig, given: SearchConfig | None) -> None:
        """Refuse options that the search in the folder did not have."""
        for name in given.changed() if given is not None else ():
            if getattr(searched, name) != getattr(given, name):
                raise RunError(
                    f"{self.folder} holds a search with {name} {getattr(searched, name)!r}, not "
                    f"{getattr(given, name)!r}; choose another folder (--run), or leave the option out"
                )


def _written(
    job: _Job, path: Path, out: Path, solution: Solution, candidates: list[Candidate], held: NamedInputs,
    options: SearchConfig,
) -> Thinned:  # fmt: skip
    """Write the file, compare and measure both."""
    exported = export_network(solution, out=out)
    drift: Drift = measure_drift(path, out, held)
    latency: SideBySide = measure_latency(
        (path, out), held, batch=options.latency_batch, threads=options.latency_threads
    )
    rows = front_rows(pareto_front(thin_candidates(candidates)), solution)
    return Thinned(
        path=out,
        solution=solution,
        format=exported.format,
        difference=exported.difference,
        drift=drift,
        latency=latency,
        bytes_before=job.bytes_before,
        bytes_after=out.stat().st_size,
        front=rows,
        run_dir=job.folder,
        page=job.folder / "report.html",
        limits=str(job.limits),
        batch=options.latency_batch,
        threads=options.latency_threads,
    )
