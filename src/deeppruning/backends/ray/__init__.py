"""A cluster of machines through Ray, by name and with its flags."""

from deeppruning.backends.ray.backend import RayBackend
from deeppruning.backends.registry import BACKENDS, BackendKind, BackendOption, Wanted


def _make(wanted: Wanted) -> RayBackend:
    cpus = wanted.options.get("ray_cpus")
    return RayBackend(
        address=wanted.options.get("ray_address"),
        cpus=wanted.threads if cpus is None else cpus,
        gpus=wanted.options.get("ray_gpus") or 0,
        threads=wanted.threads,
        workers=wanted.workers,
        timeout=wanted.timeout,
        say=wanted.say,
    )


BACKENDS.add(
    BackendKind(
        "ray",
        "a cluster",
        _make,
        (
            BackendOption(
                "ray_address",
                "The Ray cluster to join.",
                "none: Ray starts on this machine and stops with the run",
                metavar="auto|HOST:PORT|ray://HOST:PORT",
            ),
            BackendOption("ray_cpus", "Processors a candidate.", "as many as --threads", float),
            BackendOption("ray_gpus", "GPUs a candidate, 0.25 for a quarter.", "0", float),
        ),
    ),
    place=20,
)
