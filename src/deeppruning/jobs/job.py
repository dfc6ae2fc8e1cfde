"""A job: everything a run needs, settled once by `prepare` and never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from deeppruning.backends import Backend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.backends.local import local_backend
from deeppruning.backends.registry import Wanted
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError
from deeppruning.jobs.classification import Augmentation
from deeppruning.limits import Limits
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import Observer, ignore
from deeppruning.searching.task import Task
from deeppruning.system.device import available_threads, default_workers, most_workers, workers_here


@dataclass(frozen=True)
class Compute:
    """Where a job is computed; nothing of it changes the result."""

    workers: int | None = None  # local processes; None: as many as the cores have room for
    device: str = "auto"
    backend: Backend | None = None  # instead of local processes
    candidate_timeout: Timeout | None = None  # seconds, auto or off; None: the backend's default, auto

    def resumed(self, recorded: Mapping[str, Any]) -> "Compute":
        """The same, with what was left open taken from the table that a run recorded."""
        local = self.backend is None and self.candidate_timeout is None
        return Compute(
            workers=workers_here(recorded.get("workers")) if self.workers is None else self.workers,
            device=recorded["device"] if self.device == "auto" else self.device,
            backend=self.backend,
            candidate_timeout=recorded.get("candidate_timeout") if local else self.candidate_timeout,
        )

    def alone(self, recorded: Mapping[str, Any]) -> "Compute":
        """For the fine-tuning of one network: one worker, on the device that the run recorded."""
        return replace(self, workers=1, device=self.resumed(recorded).device)

    def worker_count(self, threads: int) -> int:
        """How many local processes evaluate candidates, each with this many threads."""
        if self.workers is None:
            return default_workers(threads)
        if isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1:
            raise InputError(
                "workers must be a whole number of at least 1, or None to use all cores, "
                f"got {self.workers!r}"
            )
        if self.workers > most_workers():
            raise InputError(
                f"workers must be at most {most_workers()} on this machine, which has {available_threads()} "
                f"cores, got {self.workers}; leave it out to use them all"
            )
        return self.workers

    def make_backend(self, threads: int) -> Backend:
        """The backend that was given, or one of local processes."""
        if self.backend is not None and self.candidate_timeout is not None:
            raise InputError("candidate_timeout is for local workers; give the backend timeout= instead")
        timeout = AUTO if self.candidate_timeout is None else read_timeout(self.candidate_timeout)
        wanted = Wanted(threads=threads, workers=self.worker_count(threads), timeout=timeout)
        return self.backend or local_backend(wanted)


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """A network, its task and its options, ready to run."""

    model: nn.Module
    context: Context
    task: Task  # the context's task may be a lighter copy, without the whole training set
    search: SearchConfig
    finetune: FinetuneConfig
    compute: Compute
    backend: Backend
    description: Mapping[str, str] = field(default_factory=dict)  # metadata of saved solutions
    observer: Observer = ignore
    target: Limits = field(default_factory=Limits)
    multiples: Mapping[str, int] | None = None  # fast multiples by runtime, where they decided the widths
    sample_note: str = ""  # why the sample is smaller than usual
    augmentation: Augmentation | None = None  # None where nothing is fine-tuned with augmentation
