"""Serve the page of a run and keep it live: two addresses, nothing else, by default to this machine only."""

import contextlib
import hashlib
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deeppruning.errors import DeepPruningError, InputError
from deeppruning.reporting.comparison import FOLDER, RESULTS
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import embed, policy, render
from deeppruning.reporting.words import in_use
from deeppruning.runs.folder import CONFIG, HISTORY, LOCK

MOST_CONNECTIONS = 64
PROTECTION = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::", "")


def check_address(host: str, port: int) -> None:
    """Refuse an address that nothing can be served at, before anyone waits for what is to be served."""
    with _address_errors(host, port):
        ThreadingHTTPServer((host, port), BaseHTTPRequestHandler).server_close()


@contextlib.contextmanager
def _address_errors(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot serve at {host}:{port} ({reason}); choose another --port (0 takes a free one) or --host"
        ) from error


class ReportServer(ThreadingHTTPServer):
    """A server of one run; `address` is what to open, `serve_forever` serves until it is shut down."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024  # connections that wait for a thread; the system may allow fewer

    def __init__(self, run_dir: Path | str, host: str = "127.0.0.1", port: int = 0) -> None:
        collect(run_dir)  # a folder that is no run is refused before anything is opened
        self.run_dir = run_dir
        with _address_errors(host, port):
            super().__init__((host, port), _Handler)
        self.host = host
        # One thread a connection, but no more than this: a thousand at once would starve each other.
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._pages = _Fresh(run_dir)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait for a free thread before one is started; whoever comes meanwhile waits in the queue."""
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection and free its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away; anything else is a fault of ours, and is told."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def body(self, path: str) -> tuple[str, bytes] | None:
        """Kind and contents of what is served under a path; None if that is nothing."""
        return self._pages.body(path)

    @property
    def address(self) -> str:
        """The page's address."""
        host = "127.0.0.1" if self.host in EVERYWHERE else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def knows(self, host: str) -> bool:
        """Whether a request was meant for this server.

        A name that someone else's page made point here must not read the run; whoever serves to the
        whole network has chosen to be reachable by any name.
        """
        if self.host in EVERYWHERE:
            return True
        port = self.server_address[1]
        return host in {f"{name}:{port}" for name in (*LOOPBACK, self.host)}


class _Fresh:
    """What is served, made anew only when the run has changed: a thousand readers cost one reading."""

    def __init__(self, run_dir: Path | str) -> None:
        self._run_dir = Path(run_dir)
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Any, tuple[str, bytes]]] = {}

    def body(self, path: str) -> tuple[str, bytes] | None:
        """Kind and contents; a run that cannot be read raises."""
        makers = {"/": self._page, "/data.json": self._data}
        if path not in makers:
            return None
        with self._lock:
            stamp = self._stamp()
            if path not in self._seen or self._seen[path][0] != stamp:
                self._seen[path] = (stamp, makers[path]())
            return self._seen[path][1]

    def _stamp(self) -> tuple[Any, ...]:
        """Something that differs when any file that is shown does."""
        files = [self._run_dir / name for name in (CONFIG, HISTORY, f"{HISTORY}-journal", LOCK)]
        files.append(self._run_dir / FOLDER / RESULTS)
        stats = [file.stat() if file.exists() else None for file in files]
        times = [(stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None for stat in stats]
        # Whether the run is at work may change while no file does, and SQLite's own count of changes
        # (bytes 24 to 28) tells apart what happens within one tick of the clock.
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
    server: ReportServer
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a request to arrive; a thread is not kept for who says nothing

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
        self.send_header("Connection", "close")  # a thread must not wait for who has been answered
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """With what protects the reader, on errors too."""
        for name, value in PROTECTION.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a line every two seconds would bury the address."""
