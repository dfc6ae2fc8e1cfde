"""The connection to a Ray cluster, which all sessions share, and the check of its nodes."""

import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from deeppruning.backends.ray_node import make_probe, versions
from deeppruning.errors import InputError
from deeppruning.system.commands import how_to_install
from deeppruning.system.device import available_threads

_TIME_TO_ANSWER = 10.0  # seconds for a head node to accept a connection
_TIME_TO_PROBE = 180.0  # seconds for all nodes to start a process and import torch
_users = 0
_opened_for: str | None = None  # the address; None while the connection is not ours

Node = Mapping[str, Any]  # as `ray.nodes()` describes it


def import_ray() -> ModuleType:
    """Ray, or an error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise InputError(
            f"the backend ray needs Ray, which is not installed here; {how_to_install('ray')}"
        ) from error
    module: ModuleType = ray
    return module


def connect(address: str | None, *, processors: float | None) -> None:
    """Join the cluster at the address, or start Ray here without one; every call needs a `disconnect`.

    A program that has called ray.init itself keeps its own connection. `processors` is how many a Ray
    started here may use, None for all.
    """
    global _users, _opened_for
    ray = import_ray()
    address = address or os.environ.get("RAY_ADDRESS") or None
    if not ray.is_initialized():
        _start_or_join_ray(ray, address, processors)
        _users, _opened_for = 0, address or "local"
    elif address is not None and not _is_connected_to(ray, address):
        raise InputError(
            f"this program is already connected to another Ray than {address!r}; call ray.shutdown() first, "
            "or leave the address out to use that one"
        )
    _users += 1


def disconnect() -> None:
    """Give up the connection; the last call ends it, and with it a Ray that was started here."""
    global _users, _opened_for
    _users -= 1
    if _users == 0 and _opened_for is not None:
        _opened_for = None
        import_ray().shutdown()


def _is_connected_to(ray: ModuleType, address: str) -> bool:
    """Whether the open connection goes to this address, as far as one can tell."""
    if _opened_for is not None or address == "auto":
        return address in ("auto", _opened_for)
    return address.startswith("ray://") or ray.get_runtime_context().gcs_address == address


def _start_or_join_ray(ray: ModuleType, address: str | None, processors: float | None) -> None:
    """Start Ray on this machine, or join the cluster at an address."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["num_cpus"] = max(1, math.ceil(processors or available_threads()))
        options["include_dashboard"] = False
    else:
        _check_address(address)
    try:
        ray.init(address or "local", **options)
    except ImportError as error:
        raise InputError(
            f"an address that begins with ray:// needs Ray's client; {how_to_install('ray')}"
        ) from error
    except (Exception, SystemExit) as error:  # Ray exits if another program answers at the address
        ray.shutdown()
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if address is None:
            raise InputError(
                f"Ray could not be started here ({reason}); try again when the machine is less busy, check "
                "memory and the space in Ray's folder (RAY_TMPDIR), or use the local backend"
            ) from error
        if "ersion mismatch" in str(error):
            raise InputError(
                f"the cluster at {address!r} and this machine have different versions; install the same Ray "
                f"and Python on both. Ray says:\n{error}"
            ) from error
        raise InputError(
            f"no Ray cluster could be joined at {address!r} ({reason}); {_advice_on_address(address)}"
        ) from error


def _check_address(address: str) -> None:
    """Refuse an address where no program listens at once: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"unknown Ray address {address!r}; use auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIME_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no program answers at the Ray address {address!r} ({error}); {_advice_on_address(address)}"
        ) from error


def _advice_on_address(address: str) -> str:
    """What to try where no cluster answers at an address."""
    if address == "auto":
        return (
            "start one with `ray start --head`, give its address as HOST:PORT or ray://HOST:PORT, "
            "or leave the address out to use this machine alone"
        )
    if address.startswith("ray://"):
        return "check that the head node is up and its client port (10001 by default) is open"
    return (
        "check with `ray status` that the cluster is up, and that this machine is one of its nodes (if not: "
        "ray://HOST:10001)"
    )


@dataclass(frozen=True)
class Share:
    """The resources of a node that one candidate needs."""

    cpus: float
    gpus: float

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        return f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}{gpus}"

    def fits(self, node: Node) -> int:
        """How many candidates fit on a node at a time."""
        resources = node["Resources"]
        needed = {"CPU": self.cpus, "GPU": self.gpus}
        # Slightly more than there is, because ten tenths of a GPU are less than one in binary.
        return min(int(resources.get(kind, 0.0) / share + 1e-6) for kind, share in needed.items() if share)


def alive() -> list[dict[str, Any]]:
    """The nodes that are up, as Ray describes them."""
    return [node for node in import_ray().nodes() if node["Alive"]]


def names(nodes: Iterable[Node]) -> dict[str, str]:
    """The name of each node by Ray's id: the name it was started with, else its host's.

    Nodes of the same name, such as two on one host, get the beginning of their ids as well.
    """
    plain = {}
    for node in nodes:
        named = node.get("NodeName") not in (None, "", node["NodeManagerAddress"])
        plain[node["NodeID"]] = node["NodeName"] if named else node["NodeManagerHostname"]
    counts = Counter(plain.values())
    return {id_: name if counts[name] == 1 else f"{name}#{id_[:4]}" for id_, name in plain.items()}


def on_node(node: str) -> dict[str, Any]:
    """Options of a task that must run on a node, at once."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    affinity = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": affinity}


def check(share: Share) -> list[str]:
    """Refuse a cluster that cannot do the work; returns warnings about what is only unusual."""
    nodes = alive()
    able = [node for node in nodes if share.fits(node)]
    if not able:
        raise InputError(_why_no_node_fits(share, nodes))
    described = _describe_nodes(able, names(nodes))
    if not described:
        raise InputError("every node was lost while it was checked; see `ray status`, and try again")
    for name, description in described.items():
        _check_node(name, description, share)
    warnings = []
    processors = {description["processor"] for description in described.values()}
    if len(processors) > 1 and not share.gpus:
        warnings.append(
            f"the nodes have different processors ({'; '.join(sorted(processors))}): the last bits of a "
            "result may depend on the node that evaluates a candidate"
        )
    gpus = sum(node["Resources"].get("GPU", 0.0) for node in nodes)
    if gpus and not share.gpus:
        warnings.append(f"the cluster has {gpus:g} GPUs, but candidates use none (--ray-gpus, gpus=)")
    return warnings


def _describe_nodes(nodes: Iterable[Node], called: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The description that each node gives of itself, by name; a node that is lost meanwhile is left out."""
    ray = import_ray()
    probe = ray.remote(make_probe())
    calls = {probe.options(**on_node(node["NodeID"])).remote(): called[node["NodeID"]] for node in nodes}
    _, silent = ray.wait(list(calls), num_returns=len(calls), timeout=_TIME_TO_PROBE)
    if silent:
        listed = ", ".join(sorted(calls[call] for call in silent))
        raise InputError(
            f"no answer within {_TIME_TO_PROBE:.0f} s from {listed}; remove them from the cluster or look at "
            "their logs (`ray logs`)"
        )
    answers = {}
    for call, name in calls.items():
        try:
            answers[name] = ray.get(call)
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue
        except ray.exceptions.RayError as error:
            raise InputError(f"node {name} cannot run anything: {error}") from error
    return answers


def _check_node(name: str, description: Mapping[str, str], share: Share) -> None:
    """Refuse a node with other versions of packages, or without a device that candidates need."""
    here = versions()
    remedy = (
        f"install deeppruning-es {here['deeppruning']} with torch {here['torch']} in the Python that runs "
        "Ray there, or send it along: ray.init(address, runtime_env={'pip': [...]}) before dp.prune"
    )
    missing = description.get("missing")
    if missing is not None and "deeppruning" not in description:
        raise InputError(f"node {name} does not have deeppruning ({missing}); {remedy}")
    differences = [
        f"{package} {description.get(package, 'unknown')} there, {version} here"
        for package, version in here.items()
        if description.get(package, version) != version
    ]
    if differences or missing is not None:
        listed = "; ".join([*differences, *([missing] if missing is not None else [])])
        raise InputError(f"node {name} has other versions than this machine ({listed}); {remedy}")
    if share.gpus and not description["gpu"]:
        raise InputError(
            f"node {name} has a GPU, but its torch ({description['torch']}) is built without support for it; "
            "install a build with CUDA or ROCm there"
        )


def _why_no_node_fits(share: Share, nodes: Iterable[Node]) -> str:
    """Why no node has the resources that one candidate needs."""
    resources = [(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in nodes]
    listed = " | ".join(f"{cpus:g} CPU, {gpus:g} GPU" for cpus, gpus in resources)
    if share.gpus and not any(gpus for _, gpus in resources):
        problem = "a candidate needs a GPU and no node has one"
    else:
        problem = f"a candidate needs {share} and no node has that much"
    return f"{problem} (nodes: {listed or 'none'}); ask for less, or add such nodes to the cluster"
