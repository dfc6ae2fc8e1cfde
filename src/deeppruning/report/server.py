"""Serve the page of a run and keep it live: two addresses, nothing else, by default to this machine only."""

import hashlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deeppruning.errors import DeepPruningError, InputError
from deeppruning.report.data import collect
from deeppruning.report.page import embed, render

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::", "")


class ReportServer(ThreadingHTTPServer):
    """A server of one run; `address` is what to open, `serve_forever` serves until it is shut down."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, run_dir: Path | str, host: str = "127.0.0.1", port: int = 0) -> None:
        collect(run_dir)  # a folder that is no run is refused before anything is opened
        self.run_dir = run_dir
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot serve at {host}:{port} ({reason}); "
                "choose another --port (0 takes a free one) or --host"
            ) from error
        self.host = host

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


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host", "")):
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"not the host this page is served at")
        makers = {"/": self._page, "/data.json": self._data}
        make = makers.get(urlsplit(self.path).path)
        if make is None:
            return self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")
        try:
            kind, body = make()
        except DeepPruningError as error:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", str(error).encode())
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if self.headers.get("If-None-Match") == etag:
            return self._answer(HTTPStatus.NOT_MODIFIED, kind, b"", etag)
        return self._answer(HTTPStatus.OK, kind, body, etag)

    do_HEAD = do_GET

    def _page(self) -> tuple[str, bytes]:
        return "text/html", render(collect(self.server.run_dir), live=True).encode()

    def _data(self) -> tuple[str, bytes]:
        return "application/json", embed(collect(self.server.run_dir)).encode()

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a line every two seconds would bury the address."""
