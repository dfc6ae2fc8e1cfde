"""Ray clusters for the tests: several nodes on this machine, each cluster with ports of its own."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
STORE = 100 * 2**20  # bytes of each node's object store
# Ray takes a quarter of a minute to believe that a node is gone.
SETTINGS = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
# Ray gives a node's helper processes a few seconds to say which ports they took, which is short on a busy
# machine; ports chosen for them need not be waited for.
HELPER_PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
TRIES = 3
TOO_SLOW = "timed out during startup"
WHY_SKIPPED = f"Ray did not start within its own time limit, {TRIES} times over: this machine is too busy"


@contextmanager
def running_cluster(*nodes: str) -> Iterator[Any]:
    """A cluster with a node of one processor for each name."""
    pytest.importorskip("ray")
    cluster = _with_head(nodes[0])
    try:
        for name in nodes[1:]:
            add_node(cluster, name)
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def connected(*nodes: str) -> Iterator[Any]:
    """The same, with this process connected to it, as by a program of the user's own."""
    ray = pytest.importorskip("ray")
    with running_cluster(*nodes) as cluster:
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            yield cluster
        finally:
            ray.shutdown()


def add_node(cluster: Any, name: str, **options: Any) -> Any:
    """Another node of one processor."""
    return _patiently(lambda: cluster.add_node(**_node(name), **options))


def lose_node(cluster: Any, node: Any) -> None:
    """Kill a node's processes, and wait until the cluster has noticed."""
    import ray

    cluster.remove_node(node, allow_graceful=False)
    while any(known["NodeID"] == node.node_id and known["Alive"] for known in ray.nodes()):
        time.sleep(0.1)


def _with_head(name: str) -> Any:
    from ray.cluster_utils import Cluster

    head = {"_system_config": SETTINGS, "include_dashboard": False, "no_monitor": True}
    return _patiently(lambda: Cluster(initialize_head=True, head_node_args={**head, **_node(name)}))


def _node(name: str) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("", 0))) for _ in HELPER_PORTS]
        ports = dict(zip(HELPER_PORTS, (one.getsockname()[1] for one in bound), strict=True))
    lean = {"num_cpus": 1, "object_store_memory": STORE, "include_log_monitor": False}
    return {"node_name": name, **lean, **ports}


def _patiently(start: Callable[[], Any]) -> Any:
    """Ray waits 30 s for a node, and no option makes it wait longer: a crowded machine needs another try."""
    for _ in range(TRIES):
        try:
            return start()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
    pytest.skip(WHY_SKIPPED)
