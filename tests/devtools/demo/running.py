"""A demo in a process of its own, watched as a user would: by what it says,
what the server answers and which processes there are.
"""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.devtools.demo.progress import fetch_json
from millrace.runners.processes import is_alive, kill_trees, list_tree

TIMEOUT = 180
"""Seconds; more than anything takes on a starved machine."""
LIMIT = 10
"""Seconds within which everything must have ended."""
QUICK = ("--on", "local", "--scale", "0.2", "--port", "0")
"""In one process instead of Spark, with few vehicles, so that it starts quickly."""


def command(folder: Path, *words: str, python: Path | None = None) -> list[str]:
    return [
        str(python or sys.executable),
        "-m",
        "millrace.cli.main",
        "demo",
        "--no-browser",
        "--folder",
        str(folder),
        *words,
    ]


class Demo:
    """One that is running; its lines come from a pipe."""

    def __init__(self, folder: Path, *words: str, python: Path | None = None) -> None:
        self.process = subprocess.Popen(
            command(folder, *words, python=python),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder.parent,
        )
        self.lines: list[str] = []
        self.port = 0
        self._lines: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def until(self, pattern: str) -> re.Match[str]:
        """Waits for a line."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=0.2)
            except queue.Empty:
                assert self.process.poll() is None, (
                    f"the demo ended with {self.process.returncode}: {''.join(self.lines)}"
                )
                continue
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line with {pattern!r} in {''.join(self.lines)}")

    def until_map(self) -> None:
        """Waits for the address, and remembers it."""
        self.port = int(self.until(r"the map is at http://127\.0\.0\.1:(\d+)")[1])

    def shows(self, view: str) -> bool:
        """Whether there is anything of a view."""
        found = fetch_json(self.port, f"/api/views/{view}")
        return found is not None and bool(found["cells"])

    def cells(self) -> list[dict[str, object]]:
        """What the server shows now."""
        found = fetch_json(self.port, "/api/views/vehicle-distribution")
        return [] if found is None else list(found["cells"])

    def time(self) -> int:
        """The newest window that the server shows."""
        found = fetch_json(self.port, "/api/views/vehicle-distribution")
        return 0 if found is None else int(found["time"] or 0)

    def processes(self) -> list[int]:
        """The demo and all that it has started."""
        return list_tree(self.process.pid)

    def part(self, command: str) -> int:
        """The process of a part."""
        for pid in self.processes()[1:]:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"millrace.devtools.demo.child" in words and command.encode() in words:
                return pid
        raise AssertionError(f"no part runs {command}")

    def ends(self, number: int = signal.SIGINT) -> int:
        """Tells it to end; its code, once nothing of it is left, which must be in time."""
        there, began = self.processes(), time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout=TIMEOUT)
        eventually(lambda: not any(map(is_alive, there)), "no process is left")
        assert time.monotonic() - began < LIMIT
        self._listener.join(TIMEOUT)
        while not self._lines.empty():
            self.lines.append(self._lines.get())
        return code

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)


@contextmanager
def demo(folder: Path, *words: str, python: Path | None = None) -> Iterator[Demo]:
    """Whatever the test does, nothing is left running. `python`: that of another environment."""
    running = Demo(folder, *words, python=python)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            kill_trees([running.process.pid], timeout=LIMIT)
        running.process.wait()


def eventually(fact: Callable[[], bool], message: str) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + TIMEOUT
    while not fact():
        assert time.monotonic() < deadline, message
        time.sleep(0.05)
