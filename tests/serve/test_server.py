"""`millrace serve` as a process: how it starts, what it says when it cannot, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.errors import ComponentMissing, ConfigError
from millrace.log import Log
from millrace.serve import serve
from millrace.serve.server import address, open_listener
from serve.conftest import CENTRE, EVERYWHERE, Running, Watching, named, wait_until, write

pytestmark = pytest.mark.slow

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[Start]:
    """`millrace serve` with options, in a folder of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "millrace.cli.main", "serve", "--log", url, *options]
        child = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.communicate()


def port_of(child: subprocess.Popen[str]) -> int:
    """From the line that says where it serves."""
    assert child.stderr is not None
    line = child.stderr.readline()
    found = re.search(r"serving embedded:\S+ at http://127\.0\.0\.1:(\d+)/$", line)
    assert found, line
    return int(found[1])


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_serves_and_ends_at_once(log: Log, start: Start, number: signal.Signals) -> None:
    write(log, 0, {CENTRE: 3})
    child = start("--port", "0")
    port = port_of(child)
    wait_until(lambda: answers(port))
    viewer = Watching(f"ws://127.0.0.1:{port}/api/live")
    viewer.subscribe(EVERYWHERE)
    viewer.take_until(lambda: viewer.cells == {named(CENTRE): 3})
    begun = time.monotonic()
    child.send_signal(number)
    out, errors = child.communicate(timeout=10)
    viewer.close()
    assert (child.returncode, out, errors) == (130, "", "stopped\n")
    assert time.monotonic() - begun < 3


def test_a_port_in_use_is_named_with_the_way_out(start: Start) -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        child = start("--port", str(port))
        out, errors = child.communicate(timeout=30)
    assert (child.returncode, out) == (1, "")
    assert errors.startswith(f"error: port {port} of 127.0.0.1 is in use")
    assert "--port" in errors
    assert errors.count("\n") == 1


def test_an_address_of_no_machine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen at 203\.0\.113\.7, port 8080: .*--host"):
        open_listener("203.0.113.7", 8080)
    with pytest.raises(ConfigError, match=r"cannot listen at no\.such\.host\.invalid, port 8080"):
        open_listener("no.such.host.invalid", 8080)


def test_the_address_is_one_that_a_browser_takes() -> None:
    with open_listener("0.0.0.0", 0) as everywhere:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address(everywhere))


def test_a_missing_extra_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(ComponentMissing, match=r"needs uvicorn, .*pip install 'millrace-streams\[serve\]'"):
        serve(url, [])


def test_a_viewer_that_leaves_in_the_middle_is_forgotten_without_a_word(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        viewer = running.watch(EVERYWHERE)
        viewer.socket.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not running.state.hub.viewers)
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
