"""Serve the page of a run and keep it live: two addresses, nothing else, by default to this machine only."""

from __future__ import annotations

import contextlib
import hashlib
import io
import resource
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from deeppruning.errors import DeepPruningError, InputError
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import embed, policy, render
from deeppruning.reporting.sections.rivals import FOLDER, RESULTS
from deeppruning.reporting.standing import in_use
from deeppruning.runs.folder import CONFIG, HISTORY, LOCK

MOST_CONNECTIONS = 2048
LONGEST_REQUEST = 1 << 17  # bytes
PATIENCE = 10.0  # seconds
PROTECTION = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::", "")


def check_address(host: str, port: int) -> None:
    """Refuse an address that cannot be served at, before waiting for a run."""
    with _address_errors(host, port):
        HTTPServer((host, port), BaseHTTPRequestHandler).server_close()


@contextlib.contextmanager
def _address_errors(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot serve at {host}:{port} ({reason}); choose another --port (0 takes a free one) or --host"
        ) from error


@dataclass(eq=False)
class Connection:
    """A client, what it has sent so far, and what is left to be sent to it."""

    client: socket.socket
    address: Any
    end: float  # of patience, by the monotonic clock
    request: bytes = b""
    answer: bytes = b""

    @property
    def is_whole(self) -> bool:
        """Whether the request has arrived: only its head is read."""
        ended = b"\r\n\r\n" in self.request or b"\n\n" in self.request
        return ended or len(self.request) > LONGEST_REQUEST


def _most_connections() -> int:
    """Half of the files that this process may open: the run has to be read as well."""
    return min(MOST_CONNECTIONS, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class ReportServer(HTTPServer):
    """A server of one run; `address` is what to open, `serve_forever` serves until it is shut down.

    One thread waits for all connections, so that a slow client costs a socket and blocks nobody. A whole
    request must arrive within `patience` seconds, and its answer be taken within as many.
    """

    allow_reuse_address = True
    request_queue_size = 1024  # connections that wait to be accepted; the system may allow fewer

    def __init__(
        self, run_dir: Path | str, host: str = "127.0.0.1", port: int = 0, *, patience: float = PATIENCE
    ) -> None:
        collect(run_dir)  # a folder that is no run is refused before anything is opened
        self.run_dir = run_dir
        with _address_errors(host, port):
            super().__init__((host, port), _Handler)
        self.socket.setblocking(False)
        self.host = host
        self.patience = patience
        self.connections: dict[socket.socket, Connection] = {}  # oldest first
        self._pages = _Fresh(run_dir)
        self._stopping, self._stopped = threading.Event(), threading.Event()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serve until `shutdown` is called, which is checked once per interval (seconds)."""
        self._stopping.clear()
        self._stopped.clear()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ)
                while not self._stopping.is_set():
                    late = time.monotonic()  # before looking at what has arrived meanwhile, which counts
                    for key, _ in selector.select(poll_interval):
                        if key.fileobj is self.socket:
                            self._admit(selector)
                        else:
                            self._go_on(selector, key.data)
                    self._drop(selector, [one for one in self.connections.values() if one.end < late])
                self._drop(selector, list(self.connections.values()))
        finally:
            self._stopped.set()

    def shutdown(self) -> None:
        """Stop serving; returns when that is done."""
        self._stopping.set()
        self._stopped.wait()

    def _admit(self, selector: selectors.BaseSelector) -> None:
        """Accept a connection; if there are too many, the oldest is dropped."""
        with contextlib.suppress(OSError):
            client, address = self.socket.accept()
            client.setblocking(False)
            end = time.monotonic() + self.patience
            opened = self.connections[client] = Connection(client, address, end)
            selector.register(client, selectors.EVENT_READ, opened)
        self._drop(selector, list(self.connections.values())[: -_most_connections()])

    def _go_on(self, selector: selectors.BaseSelector, connection: Connection) -> None:
        """Receive, or send part of the answer, as far as possible without waiting."""
        try:
            if connection.client not in self.connections:
                return  # dropped in the same round
            if not connection.answer:
                received = connection.client.recv(LONGEST_REQUEST)
                connection.request += received
                if received and not connection.is_whole:
                    return
                connection.answer = self._answer(connection)
                connection.end = time.monotonic() + self.patience
                selector.modify(connection.client, selectors.EVENT_WRITE, connection)
            connection.answer = connection.answer[connection.client.send(connection.answer) :]
        except BlockingIOError:
            return
        except ConnectionError:  # a client that went away
            connection.answer = b""
        if not connection.answer:
            self._drop(selector, [connection])

    def _answer(self, connection: Connection) -> bytes:
        try:
            return _Handler(cast(Any, connection.request), connection.address, self).answer
        except Exception:  # a fault of ours, which is reported and must not end the service
            self.handle_error(connection.client, connection.address)
            return b""

    def _drop(self, selector: selectors.BaseSelector, connections: Iterable[Connection]) -> None:
        for one in connections:
            selector.unregister(one.client)
            self.shutdown_request(one.client)
            del self.connections[one.client]

    def body(self, path: str) -> tuple[str, bytes] | None:
        """Content type and contents of what is served under a path; None if nothing is."""
        return self._pages.body(path)

    @property
    def address(self) -> str:
        """The page's address."""
        host = "127.0.0.1" if self.host in EVERYWHERE else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def knows(self, host: str) -> bool:
        """Whether a request was meant for this server.

        A foreign name that resolves to this machine (DNS rebinding) must not read the run; a server of the
        whole network is meant to be reached by any name.
        """
        if self.host in EVERYWHERE:
            return True
        port = self.server_address[1]
        return host in {f"{name}:{port}" for name in (*LOOPBACK, self.host)}


class _Fresh:
    """What is served, made anew only when the run has changed."""

    def __init__(self, run_dir: Path | str) -> None:
        self._run_dir = Path(run_dir)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Any, tuple[str, bytes]]] = {}

    def body(self, path: str) -> tuple[str, bytes] | None:
        """Content type and contents; a run that cannot be read raises."""
        makers = {"/": self._page, "/data.json": self._data}
        if path not in makers:
            return None
        with self._lock:
            stamp = self._stamp()
            if path not in self._seen or self._seen[path][0] != stamp:
                self._seen[path] = (stamp, makers[path]())
            return self._seen[path][1]

    def _stamp(self) -> tuple[Any, ...]:
        """A value that changes with every file that is shown."""
        files = [self._run_dir / name for name in (CONFIG, HISTORY, f"{HISTORY}-journal", LOCK)]
        files.append(self._run_dir / FOLDER / RESULTS)
        stats = [file.stat() if file.exists() else None for file in files]
        times = [(stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None for stat in stats]
        # A process may start or end without a change of files, and SQLite's own count of changes (bytes 24 to
        # 28) separates what happens within one tick of the clock.
        changes = b""
        with contextlib.suppress(OSError):
            if files[1].is_file():
                with files[1].open("rb") as file:
                    changes = file.read(28)[24:]
        return (in_use(self._run_dir), changes, *times)

    def _page(self) -> tuple[str, bytes]:
        return "text/html", render(collect(self._run_dir), live=True).encode()

    def _data(self) -> tuple[str, bytes]:
        return "application/json", embed(collect(self._run_dir)).encode()


class _Handler(BaseHTTPRequestHandler):
    """Makes the answer to a request; both are bytes."""

    server: ReportServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Instead of a connection."""
        self.rfile = io.BytesIO(cast(bytes, self.request))
        self._written = self.wfile = io.BytesIO()

    def finish(self) -> None:
        """Keep what was written."""
        self.answer = self._written.getvalue()

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"not the host this page is served at")
        try:
            found = self.server.body(urlsplit(self.path).path)
        except DeepPruningError as error:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error).encode())
        except ValueError:  # an address that is none
            found = None
        if found is None:
            return self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")
        kind, body = found
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == etag:
            return self._answer(HTTPStatus.NOT_MODIFIED, kind, b"", etag)
        return self._answer(HTTPStatus.OK, kind, body, etag)

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """With the headers that protect the reader, on errors too."""
        for name, value in PROTECTION.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: a line every two seconds would bury the address."""
