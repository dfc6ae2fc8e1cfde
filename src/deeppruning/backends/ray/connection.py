"""This program's one connection to Ray, shared by all that use it and given up with the last of them."""

import logging
import math
import os
import socket
from types import ModuleType

from deeppruning.errors import InputError
from deeppruning.system.commands import how_to_install
from deeppruning.system.device import available_threads

_PATIENCE = 10.0  # seconds for a head node to accept a connection, and again to answer
_users = 0
_opened_for: str | None = None  # the address, for an error; None while the connection is not ours


def import_ray() -> ModuleType:
    """Ray, or a word on how to get it."""
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
        if address is None:
            _start(ray, processors)
        else:
            _join(ray, address)
        _users, _opened_for = 0, address or "local"
    elif address is not None and not _is_same(ray, address):
        raise InputError(
            f"this program is connected to another Ray than {address!r} already; call ray.shutdown() first, "
            "or leave the address out to use that one"
        )
    _users += 1


def disconnect() -> None:
    """Let go; the last to do so ends the connection, and with it a Ray that was started here."""
    global _users, _opened_for
    _users -= 1
    if _users == 0 and _opened_for is not None:
        _opened_for = None
        import_ray().shutdown()


def is_connected() -> bool:
    """Whether there is a connection, ours or the program's own."""
    return bool(import_ray().is_initialized())


def _start(ray: ModuleType, processors: float | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            "local",
            num_cpus=max(1, math.ceil(processors or available_threads())),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        ray.shutdown()
        raise InputError(
            f"Ray could not be started here ({_first_line(error)}); try again when the machine is less busy, "
            "check memory and the space in Ray's folder (RAY_TMPDIR), or use the local backend"
        ) from error


def _join(ray: ModuleType, address: str) -> None:
    _knock(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:
        raise InputError(
            f"an address that begins with ray:// needs Ray's client; {how_to_install('ray')}"
        ) from error
    except Exception as error:
        ray.shutdown()
        if "ersion mismatch" in str(error):
            raise InputError(
                f"the cluster at {address!r} and this machine have different versions; install the same Ray "
                f"and Python on both. Ray says:\n{error}"
            ) from error
        raise InputError(
            f"no Ray cluster could be joined at {address!r} ({_first_line(error)}); {_advice(address)}"
        ) from error


def _knock(address: str) -> None:
    """Refuse at once an address where nobody listens: Ray itself would try for minutes."""
    if address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"unknown Ray address {address!r}; use auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"nobody answers at the Ray address {address!r} ({error}); {_advice(address)}"
        ) from error
    if not _is_ray(f"{host}:{port}", head=not address.startswith("ray://")):
        raise InputError(
            f"what answers at {address!r} is not Ray, or not this part of it; {_advice(address)}"
        )


def _is_ray(place: str, *, head: bool) -> bool:
    """Whether a head node listens there (or, without `head`, Ray's client server), as far as one can tell."""
    try:
        import grpc  # type: ignore[import-untyped]
    except ImportError:
        return True
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True
    with grpc.insecure_channel(place) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_PATIENCE)
            if head:
                channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")(b"", timeout=_PATIENCE)
        except grpc.FutureTimeoutError:
            return False
        except grpc.RpcError as error:
            return bool(error.code() != grpc.StatusCode.UNIMPLEMENTED)
    return True


def _advice(address: str) -> str:
    if address == "auto":
        return (
            "start one with `ray start --head`, give its address as HOST:PORT or ray://HOST:PORT, "
            "or leave the address out to use this machine alone"
        )
    if address.startswith("ray://"):
        return "check that the head node is up and its client port (10001 unless set otherwise) is open"
    return (
        "check with `ray status` that the cluster is up, and that this machine is one of its nodes (if not: "
        "ray://HOST:10001)"
    )


def _is_same(ray: ModuleType, address: str) -> bool:
    """Whether the connection there is goes to this address, as far as one can tell."""
    if _opened_for is not None or address == "auto":
        return address in ("auto", _opened_for)
    return address.startswith("ray://") or ray.get_runtime_context().gcs_address == address


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
