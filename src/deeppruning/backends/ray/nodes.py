"""The nodes of a Ray cluster: how many candidates they take, and whether they are fit to take any."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deeppruning.backends.ray.connection import import_ray
from deeppruning.backends.ray.worker import make_probe, versions
from deeppruning.errors import InputError

_PATIENCE = 180.0  # seconds for all nodes to start a process and import torch


@dataclass(frozen=True)
class Share:
    """What one candidate asks of a node."""

    cpus: float
    gpus: float

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        return f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}{gpus}"

    def fits(self, node: Mapping[str, Any]) -> int:
        """How many candidates a node takes at a time."""
        has = node["Resources"]
        asked = {"CPU": self.cpus, "GPU": self.gpus}
        # A hair more than there is, because ten tenths of a GPU are less than one in binary.
        return min(int(has.get(kind, 0.0) / share + 1e-6) for kind, share in asked.items() if share)


def alive() -> list[dict[str, Any]]:
    """The nodes that are up, as Ray describes them."""
    return [node for node in import_ray().nodes() if node["Alive"]]


def room(share: Share) -> int:
    """How many candidates the cluster takes at a time, as it is now."""
    return sum(share.fits(node) for node in alive())


def names(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What people call each node, by Ray's id: the name it was started with, else its host's.

    Nodes of the same name, such as two on one host, get the beginning of their ids as well.
    """
    plain = {}
    for node in nodes:
        named = node.get("NodeName") not in (None, "", node["NodeManagerAddress"])
        plain[node["NodeID"]] = node["NodeName"] if named else node["NodeManagerHostname"]
    counts = Counter(plain.values())
    return {id_: name if counts[name] == 1 else f"{name}#{id_[:4]}" for id_, name in plain.items()}


def check(share: Share) -> list[str]:
    """Refuse a cluster that cannot do the work, before there is any; remarks on what is only odd."""
    nodes = alive()
    able = [node for node in nodes if share.fits(node)]
    if not able:
        raise InputError(_why_none(share, nodes))
    found = _ask(able, names(nodes))
    if not found:
        raise InputError("every node was lost while it was looked at; see `ray status`, and try again")
    for name, facts in found.items():
        _check_node(name, facts, share)
    remarks = []
    processors = {facts["processor"] for facts in found.values()}
    if len(processors) > 1 and not share.gpus:
        remarks.append(
            f"the nodes have different processors ({'; '.join(sorted(processors))}): the last bits of a "
            "result may depend on which node a candidate falls to"
        )
    gpus = sum(node["Resources"].get("GPU", 0.0) for node in nodes)
    if gpus and not share.gpus:
        remarks.append(f"the cluster has {gpus:g} GPUs, but candidates ask for none (--ray-gpus, gpus=)")
    return remarks


def _ask(nodes: Iterable[Mapping[str, Any]], called: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What each node says about itself, by its name; a node that is lost meanwhile is left out."""
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(num_cpus=0, max_retries=0)(make_probe())
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[probe.options(scheduling_strategy=there).remote()] = called[node["NodeID"]]
    _, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE)
    if silent:
        listed = ", ".join(sorted(asked[ref] for ref in silent))
        raise InputError(
            f"no answer within {_PATIENCE:.0f} s from {listed}; remove them from the cluster or look at "
            "their logs (`ray logs`)"
        )
    answers = {}
    for ref, name in asked.items():
        try:
            answers[name] = ray.get(ref)
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue
        except ray.exceptions.RayError as error:
            raise InputError(f"node {name} cannot run anything: {error}") from error
    return answers


def _check_node(name: str, facts: Mapping[str, str], share: Share) -> None:
    here = versions()
    remedy = (
        f"install deeppruning-es {here['deeppruning']} with torch {here['torch']} in the Python that runs "
        "Ray there, or send it along: ray.init(address, runtime_env={'pip': [...]}) before dp.prune"
    )
    if "missing" in facts and "deeppruning" not in facts:
        raise InputError(f"node {name} has not got deeppruning ({facts['missing']}); {remedy}")
    different = [
        f"{package} {facts.get(package, 'unknown')} there, {version} here"
        for package, version in here.items()
        if facts.get(package, version) != version
    ]
    if different or "missing" in facts:
        said = "; ".join([*different, *([facts["missing"]] if "missing" in facts else [])])
        raise InputError(f"node {name} has other versions than this machine ({said}); {remedy}")
    if share.gpus and not facts["gpu"]:
        raise InputError(
            f"node {name} has a GPU, but its torch ({facts['torch']}) is built without support for it; "
            "install a build with CUDA or ROCm there"
        )


def _why_none(share: Share, nodes: Iterable[Mapping[str, Any]]) -> str:
    listed = []
    gpus = 0.0
    for node in nodes:
        has = {kind: node["Resources"].get(kind, 0.0) for kind in ("CPU", "GPU")}
        gpus = max(gpus, has["GPU"])
        listed.append(f"{has['CPU']:g} CPU, {has['GPU']:g} GPU")
    if share.gpus and not gpus:
        what = "a GPU is asked for and no node has one"
    else:
        what = f"a candidate asks for {share} and no node has that much"
    return f"{what} (nodes: {' | '.join(listed) or 'none'}); ask for less, or add such nodes to the cluster"
