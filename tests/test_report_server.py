"""The live page: two addresses, to those it is meant for, until it is told to stop."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from deeppruning.cli.watch import watch
from deeppruning.errors import InputError, RunError
from deeppruning.report.server import ReportServer
from deeppruning.runs import RunFolder
from report_runs import make_run


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


def test_the_command_serves_until_interrupted(tmp_path):
    command = [sys.executable, "-c", "from deeppruning.cli.watch import watch; watch()"]
    arguments = [str(make_run(tmp_path / "run")), "--no-open"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        port = int(re.search(r"http://127.0.0.1:(\d+)/", process.stdout.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request("GET", "/data.json")
        assert json.loads(connection.getresponse().read())["state"] == "finished"
        connection.close()
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read().strip(), process.wait()) == ("stopped", 0)
