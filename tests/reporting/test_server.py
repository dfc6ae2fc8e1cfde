"""The live page: two addresses, to those it is meant for, until it is told to stop."""

import http.client
import json
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from deeppruning.cli.commands.watch import wait_for_run, watch
from deeppruning.errors import InputError, RunError
from deeppruning.reporting.server import ReportServer
from deeppruning.runs import RunFolder
from report_runs import config, make_run


@pytest.fixture
def server(tmp_path):
    with ReportServer(make_run(tmp_path / "run", 1)) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=100)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_the_page_is_live_and_the_data_follows_the_run(server):
    status, body, headers = ask(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'data-live="true"' in body
    assert b"connect-src 'self'" in body
    status, body, headers = ask(server, "/data.json")
    assert (status, len(json.loads(body)["candidates"])) == (200, 7)
    etag = headers["ETag"]
    assert ask(server, "/data.json", **{"If-None-Match": etag})[:2] == (304, b"")
    with RunFolder.open(server.run_dir) as run:
        run.history.set_fact("finished", True)
    status, body, headers = ask(server, "/data.json", **{"If-None-Match": etag})
    assert (status, json.loads(body)["state"]) == (200, "finished")
    assert headers["ETag"] != etag


@pytest.mark.parametrize(
    "path", ["/config.toml", "/../config.toml", "/history.sqlite", "/data.json/", "/%2e"]
)
def test_nothing_else_is_served(server, path):
    assert ask(server, path)[0] == 404


def test_strange_hosts_and_methods_are_refused(server):
    assert ask(server, "/data.json", Host="evil.example")[0] == 403
    assert ask(server, "/", Host=f"localhost:{server.server_address[1]}")[0] == 200
    assert ask(server, "/", method="POST")[0] == 501
    assert ask(server, "/", method="HEAD")[:2] == (200, b"")


def wait_until_idle(server):
    """The server has let go of everyone: whatever it had to say, it has said."""
    while server.connections:
        time.sleep(0.01)


def raw(server, request: bytes) -> bytes:
    """What comes back for these bytes, to the end of the connection."""
    with socket.create_connection(server.server_address[:2], timeout=30) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer


def test_headers_protect_the_reader_on_errors_too(server):
    for path in ("/", "/data.json", "/none"):
        headers = ask(server, path)[2]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        rules = headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'"} <= set(rules)
    body = ask(server, "/")[1].decode()
    meta = re.search(r'Content-Security-Policy" content="([^"]+)"', body)[1]
    assert f"{meta}; frame-ancestors 'none'" == ask(server, "/")[2]["Content-Security-Policy"]
    assert b"X-Frame-Options: DENY" in raw(server, b"BREW / HTTP/1.1\r\n\r\n")


BAD = [
    *(
        b"",
        b"\r\n",
        b"\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ),
    *(b"GET http://[::1 HTTP/1.1\r\nHost: HOST\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n"),
    *(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n"),
]


@pytest.mark.parametrize("request_bytes", BAD, ids=range(len(BAD)))
def test_a_bad_request_is_answered_or_dropped_without_a_word(server, capfd, request_bytes):
    host = f"127.0.0.1:{server.server_address[1]}".encode()
    try:
        answer = raw(server, request_bytes.replace(b"HOST", host))
    except ConnectionError:
        answer = b""
    assert b" 200 " not in answer.split(b"\n")[0]
    assert ask(server, "/data.json")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_client_that_goes_away_leaves_no_traceback(server, capfd):
    host = f"Host: 127.0.0.1:{server.server_address[1]}".encode()
    for request in (b"GET / HT", b"GET / HTTP/1.1\r\n" + host + b"\r\n\r\n"):
        for _ in range(5):
            client = socket.create_connection(server.server_address[:2], timeout=10)
            # Closed by a reset, which is what a browser that is killed leads to.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request)
            client.close()
    assert ask(server, "/data.json")[0] == 200
    wait_until_idle(server)
    assert capfd.readouterr() == ("", "")


def test_a_thousand_requests_at_once_are_answered(server, capfd):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    clients = []
    try:
        for _ in range(1000):
            clients.append(socket.create_connection(server.server_address[:2], timeout=120))
        host = f"Host: 127.0.0.1:{server.server_address[1]}".encode()
        for client in clients:
            client.sendall(b"GET /data.json HTTP/1.1\r\n" + host + b"\r\n\r\n")
        firsts = [client.recv(15) for client in clients]
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert firsts == [b"HTTP/1.1 200 OK"] * 1000
    assert threading.active_count() < 200
    wait_until_idle(server)
    assert capfd.readouterr() == ("", "")


def connect(server, count, request=b""):
    """Clients that have said so much and nothing more."""
    clients = [socket.create_connection(server.server_address[:2], timeout=100) for _ in range(count)]
    for client in clients:
        client.sendall(request)
    return clients


def test_slow_clients_keep_no_one_away(server, capfd):
    server.patience = 1e6  # none of them is dropped for being late
    host = f"Host: 127.0.0.1:{server.server_address[1]}".encode()
    silent, slow = connect(server, 40), connect(server, 80, b"GET / HTTP/1.1\r\n" + host)
    deaf = connect(server, 40, b"GET / HTTP/1.1\r\n" + host + b"\r\n\r\n")  # take nothing of the page
    assert ask(server, "/data.json")[0] == 200
    for client in slow:
        client.sendall(b"\r\n\r\n")
    assert [client.recv(15) for client in (*slow, *deaf)] == [b"HTTP/1.1 200 OK"] * 120
    for client in (*silent, *slow, *deaf):
        client.close()
    wait_until_idle(server)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("drip", [b"G", b"\r\n", b"A: b\r\n"])
def test_a_request_that_comes_in_drops_is_dropped_as_a_whole(server, drip):
    server.patience = 0.2
    (client,) = connect(server, 1, b"GET / HTTP/1.1\r\n")
    with client, pytest.raises(ConnectionError):
        while True:  # each drop comes in time, all of them together do not
            client.sendall(drip.replace(b"\r\n", b" \r\n"))
            time.sleep(0.02)


def test_who_came_first_makes_room_for_who_comes(server, monkeypatch):
    monkeypatch.setattr("deeppruning.reporting.server.MOST_CONNECTIONS", 8)
    server.patience = 1e6
    first, *others = connect(server, 8)
    assert ask(server, "/data.json")[0] == 200
    assert first.recv(1) == b""  # its end
    for client in (first, *others):
        client.close()


def test_a_run_that_vanishes_is_reported_not_a_crash(server):
    (server.run_dir / "config.toml").rename(server.run_dir / "gone")
    status, body, _ = ask(server, "/data.json")
    assert status == 503
    assert b"not a run" in body


def test_bad_input_is_refused_before_anything_is_opened(server, tmp_path):
    port = server.server_address[1]
    with pytest.raises(InputError, match=f"cannot serve at 127.0.0.1:{port}.*--port"):
        ReportServer(server.run_dir, port=port)
    with pytest.raises(RunError, match="is not a folder"):
        ReportServer(tmp_path / "missing")
    assert "Example:" in CliRunner().invoke(watch, ["--help"]).output
    found = CliRunner().invoke(watch, [str(tmp_path / "awaited"), "--port", str(port), "--no-open"])
    assert isinstance(found.exception, InputError)  # and it has not waited for a run
    assert found.output == ""


def test_a_run_that_is_being_set_up_is_waited_for(tmp_path):
    path, said, looks = tmp_path / "run", [], []

    def pause(seconds):
        looks.append(path.exists())
        if len(looks) == 2:
            path.mkdir()
            (path / "run.lock").touch()
        if len(looks) == 3:
            RunFolder.create(path, config()).close()

    wait_for_run(path, said.append, pause)
    assert looks == [False, False, True]
    assert said == [f"waiting for a run in {path}: there is none yet (Ctrl-C stops)"]
    wait_for_run(path, said.append, pause)  # it is there: not a word
    assert (len(looks), len(said)) == (3, 1)
    with ReportServer(path) as server:  # without a history yet
        assert b"no candidate evaluated yet" in server.body("/data.json")[1]


def test_what_will_never_be_a_run_is_not_waited_for(tmp_path):
    (tmp_path / "photo.jpg").touch()
    for path in (tmp_path, tmp_path / "photo.jpg"):
        with pytest.raises(RunError, match=r"not empty|is a file"):
            wait_for_run(path, print, lambda seconds: pytest.fail("it waits"))


def test_the_command_serves_until_interrupted(tmp_path):
    command = [sys.executable, "-c", "from deeppruning.cli.commands.watch import watch; watch()"]
    arguments = [str(make_run(tmp_path / "run")), "--no-open"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        port = int(re.search(r"http://127.0.0.1:(\d+)/", process.stdout.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request("GET", "/data.json")
        assert json.loads(connection.getresponse().read())["state"] == "finished"
        connection.close()
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read().strip(), process.wait()) == ("stopped", 0)
