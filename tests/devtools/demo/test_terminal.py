"""On a terminal: what is done stays written, and one line moves under it, however small the terminal is."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.demo.running import LIMIT, QUICK, TIMEOUT, command, eventually
from millrace.runners.processes import is_alive, kill_trees, list_tree

pytestmark = pytest.mark.slow


class Terminal:
    """The other side of a demo's terminal."""

    def __init__(self, folder: Path, *, columns: int, rows: int) -> None:
        self.side, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [
                "setsid",
                "--ctty",
                *command(folder, *QUICK),
            ],  # Ctrl-C and the end of a terminal are told to those whose terminal it is
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder.parent,
            env={**{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}, "TERM": "xterm"},
        )
        os.close(theirs)
        self._bytes = b""

    @property
    def shown(self) -> str:
        """All that came so far; a character or a sequence that is still on its way is not there yet."""
        return re.sub(r"\x1b(\[[?\d;]*)?$", "", codecs.getincrementaldecoder("utf-8")().decode(self._bytes))

    def until(self, pattern: str) -> None:
        """Waits until it is shown, wherever lines are broken."""
        deadline = time.monotonic() + TIMEOUT
        while not re.search(pattern, re.sub(r"[\r\n]", "", self.text())):
            assert time.monotonic() < deadline, self.shown
            self._bytes += os.read(self.side, 4096)

    def text(self) -> str:
        """What is shown, without what moves the cursor and colours it."""
        return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", self.shown)


@contextmanager
def terminal(folder: Path, *, columns: int, rows: int) -> Iterator[Terminal]:
    opened = Terminal(folder, columns=columns, rows=rows)
    try:
        yield opened
    finally:
        kill_trees([opened.process.pid], timeout=LIMIT)
        opened.process.wait()


def test_ctrl_c_in_a_terminal_ends_everything(tmp_path: Path) -> None:
    with terminal(tmp_path / "demo", columns=100, rows=30) as shown:
        shown.until(r"✓ the map is at http://127\.0\.0\.1:\d+")
        shown.until(r"events/s · watermark")
        there, began = list_tree(shown.process.pid), time.monotonic()
        os.write(shown.side, b"\x03")
        shown.until("stopped")
        assert shown.process.wait(timeout=TIMEOUT) == 130
        eventually(lambda: not any(map(is_alive, there)), "no process is left")
        assert time.monotonic() - began < LIMIT
        assert shown.shown.rindex("\x1b[?25h") > shown.shown.rindex("\x1b[?25l"), "the cursor is back"


def test_a_tiny_terminal_shows_the_address_and_a_closed_one_ends_everything(tmp_path: Path) -> None:
    with terminal(tmp_path / "demo", columns=20, rows=5) as shown:
        shown.until(r"the map is at *http://127\.0\.0\.1:\d+")
        shown.until("events/s")
        assert [line for line in re.split(r"[\r\n]+", shown.text()) if len(line) > 20] == []
        there, began = list_tree(shown.process.pid), time.monotonic()
        os.close(shown.side)
        eventually(lambda: not any(map(is_alive, there)), "no process is left")
        assert time.monotonic() - began < LIMIT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_in_the_middle_of_the_start_leaves_nothing(tmp_path: Path, number: int) -> None:
    with terminal(tmp_path / "demo", columns=80, rows=24) as shown:
        shown.until("log ready")
        eventually(lambda: len(list_tree(shown.process.pid)) >= 4, "all parts are started")
        there = list_tree(shown.process.pid)
        shown.process.send_signal(number)
        shown.until("stopped")
        assert shown.process.wait(timeout=TIMEOUT) == 130
        assert not any(map(is_alive, there))
