"""One attempt at running a query: a process of its own, which gets ready, waits to be told, reports, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.errors import MillraceError, RunFailed
from millrace.runners.processes import end_session
from millrace.runners.spark.supervisor.failures import rebuilt
from millrace.runners.state.folder import StateFolder, writing

GRACE = 15.0
"""Seconds that a query has to stop of its own accord."""

Report = Callable[[dict[str, Any]], None]
"""Told of each batch: its number, counts and watermarks."""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    error: MillraceError | None
    """None: it did what it was asked to."""
    batches: int


class Attempt:
    """A process that starts Spark at once, and its query when told to."""

    def __init__(self, folder: StateFolder, secrets: Mapping[str, str]) -> None:
        """`secrets`: passwords for the process, in its environment, as the task in the folder holds none."""
        self._scratch = folder.scratch / uuid.uuid4().hex
        reader, writer = os.pipe()
        with writing(folder.path), folder.output.open("ab") as output:
            self._scratch.mkdir()
            words = [str(folder.task), str(writer), str(folder.lock), str(os.getpid()), str(self._scratch)]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "millrace.runners.spark.supervisor.child", *words],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(writer, folder.lock),
                    start_new_session=True,
                    env={
                        **os.environ,
                        **secrets,
                        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                    },
                )
            except BaseException:
                os.close(reader)
                raise
            finally:
                os.close(writer)
        self._reports = os.fdopen(reader, "rb", buffering=0)

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def run(self, report: Report, stopping: threading.Event) -> Outcome:
        """Has the query run; takes reports until the process has ended, asks it to end when told to, and insists when it does not."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._stdin, b"go\n")
        batches, deadline, error, ended = 0, None, None, False
        for line in self._lines():
            if stopping.is_set():
                deadline = self._ask_to_stop(deadline)
            if line is None:
                continue
            said = json.loads(line)
            match said["event"]:
                case "batch":
                    batches += 1
                    report(said)
                case "started":
                    _log.info("Spark has started; the first batch follows")
                case "failed":
                    error = rebuilt(said["kind"], said["message"])
                case "done" | "stopped":
                    ended = True
        code = self._process.wait()
        if error is None and not ended and not stopping.is_set():
            error = RunFailed(
                f"its process was ended by signal {-code}"
                if code < 0
                else f"its process ended with code {code}"
            )
        return Outcome(error, batches)

    def end(self) -> None:
        """Ends all of its processes, and returns when none is left."""
        end_session(self._process.pid, patience=GRACE)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reports.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _stdin(self) -> int:
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def _ask_to_stop(self, deadline: float | None) -> float:
        if deadline is None:
            self._process.terminate()
            return time.monotonic() + GRACE
        if time.monotonic() > deadline:
            self._process.kill()
        return deadline

    def _lines(self) -> Iterator[bytes | None]:
        """Lines as they come, and None now and then when none does, until the other end is closed."""
        rest, descriptor = b"", self._reports.fileno()
        while True:
            ready, _, _ = select.select([descriptor], [], [], 0.1)
            if not ready:
                yield None
                if not self.lives:
                    return
                continue
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
