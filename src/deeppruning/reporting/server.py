"""Serve the page of a run and keep it live: two addresses, nothing else, by default to this machine only."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import resource
import threading
from collections.abc import Iterator
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
    with _errors_of_address(host, port):
        HTTPServer((host, port), BaseHTTPRequestHandler).server_close()


@contextlib.contextmanager
def _errors_of_address(host: str, port: int) -> Iterator[None]:
    """Turn what the system says about a host and port into an error with advice."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot serve at {host}:{port} ({reason}); choose another --port (0 takes a free one) or --host"
        ) from error


def _most_connections() -> int:
    """Half of the files that this process may open: the run has to be read as well."""
    return min(MOST_CONNECTIONS, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class ReportServer(HTTPServer):
    """A server of one run; `address` is what to open, `serve_forever` serves until it is shut down.

    One thread serves all connections, so that a slow client blocks no other. A whole request must
    arrive within `patience` seconds, and its answer must be received within as many.
    """

    allow_reuse_address = True
    request_queue_size = 1024  # connections that wait to be accepted; the system may allow fewer

    def __init__(
        self, run_dir: Path | str, host: str = "127.0.0.1", port: int = 0, *, patience: float = PATIENCE
    ) -> None:
        collect(run_dir)  # a folder that is no run is refused before anything is opened
        self.run_dir = Path(run_dir)
        with _errors_of_address(host, port):
            super().__init__((host, port), _Handler)
        self.host = host
        self.patience = patience
        self.connections: dict[asyncio.Task[None] | None, None] = {}  # their tasks, oldest first
        self._bodies: dict[str, tuple[Any, tuple[str, bytes]]] = {}
        self._stopping, self._stopped = threading.Event(), threading.Event()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serve until `shutdown` is called, which is checked once per interval (seconds)."""
        try:
            asyncio.run(self._serve_until_stopped(poll_interval))
        finally:
            self._stopped.set()

    def shutdown(self) -> None:
        """Stop serving; returns when that is done."""
        self._stopping.set()
        self._stopped.wait()

    async def _serve_until_stopped(self, poll_interval: float) -> None:
        server = await asyncio.start_server(
            self._talk_to_client, sock=self.socket, limit=LONGEST_REQUEST, backlog=self.request_queue_size
        )
        while not self._stopping.is_set():
            await asyncio.sleep(poll_interval)
        server.close()

    async def _talk_to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client; if there are too many, the oldest is dropped."""
        task = asyncio.current_task()
        self.connections[task] = None
        for oldest in list(self.connections)[: -_most_connections()]:
            assert oldest is not None
            oldest.cancel()
        try:
            request = await asyncio.wait_for(_request_head(reader), self.patience)
            handler = _Handler(cast(Any, request), writer.get_extra_info("peername"), self)
            writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is taken
            writer.write(handler.answer)
            await asyncio.wait_for(writer.drain(), self.patience)
            writer.close()
        except (asyncio.CancelledError, asyncio.TimeoutError, ConnectionError):
            writer.transport.abort()  # dropped, too slow, or gone
        finally:
            del self.connections[task]

    def body(self, path: str) -> tuple[str, bytes] | None:
        """Content type and contents of what is served under a path, None if nothing is.

        Rendered again only when the run has changed; raises if the run cannot be read.
        """
        if path not in ("/", "/data.json"):
            return None
        stamp = self._stamp_of_run()
        if path not in self._bodies or self._bodies[path][0] != stamp:
            data = collect(self.run_dir)
            page = path == "/"
            text = render(data, live=True) if page else embed(data)
            self._bodies[path] = stamp, ("text/html" if page else "application/json", text.encode())
        return self._bodies[path][1]

    def _stamp_of_run(self) -> tuple[Any, ...]:
        """A value that changes with every file that is shown."""
        history = self.run_dir / HISTORY
        names = (CONFIG, HISTORY, f"{HISTORY}-journal", LOCK, f"{FOLDER}/{RESULTS}")
        files = [self.run_dir / name for name in names]
        stats = [file.stat() if file.exists() else None for file in files]
        times = [(stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None for stat in stats]
        # A process may start or end without a change of files, and SQLite's own count of changes (bytes 24 to
        # 28) separates what happens within one tick of the clock.
        changes = b""
        with contextlib.suppress(OSError):
            if history.is_file():
                with history.open("rb") as file:
                    changes = file.read(28)[24:]
        return (in_use(self.run_dir), changes, *times)

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


async def _request_head(reader: asyncio.StreamReader) -> bytes:
    """The head of a request, as far as the client sends it; nothing after it is read."""
    request = b""
    while not (b"\r\n\r\n" in request or b"\n\n" in request or len(request) > LONGEST_REQUEST):
        if not (part := await reader.read(LONGEST_REQUEST)):
            break
        request += part
    return request


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
        """Answer with the page or its data; any other address is not found."""
        if not self.server.knows(self.headers.get("Host", "")):
            return self._send_answer(
                HTTPStatus.FORBIDDEN, "text/plain", b"not the host this page is served at"
            )
        try:
            content = self.server.body(urlsplit(self.path).path)
        except DeepPruningError as error:
            return self._send_answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error).encode())
        except ValueError:  # not a valid address
            content = None
        if content is None:
            return self._send_answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")
        kind, body = content
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == etag:
            return self._send_answer(HTTPStatus.NOT_MODIFIED, kind, b"", etag)
        return self._send_answer(HTTPStatus.OK, kind, body, etag)

    do_HEAD = do_GET

    def _send_answer(self, status: HTTPStatus, kind: str, body: bytes, etag: str | None = None) -> None:
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
        """Print nothing: a line every two seconds would hide the address."""
