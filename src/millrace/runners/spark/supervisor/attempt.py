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
from millrace.runners.processes import kill_session
from millrace.runners.spark.supervisor.failures import rebuild_error
from millrace.runners.state.folder import StateFolder, explain_write_errors

STOP_TIMEOUT = 15.0
"""Seconds that a query has to stop of its own accord."""

Report = Callable[[dict[str, Any]], None]
"""Told of each batch: its number, counts and watermarks."""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class AttemptResult:
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
        with explain_write_errors(folder.path), folder.spark_log.open("ab") as output:
            self._scratch.mkdir()
            arguments = [
                str(folder.task_file),
                str(writer),
                str(folder.lock),
                str(os.getpid()),
                str(self._scratch),
            ]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "millrace.runners.spark.supervisor.child", *arguments],
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
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def run(self, report: Report, stopping: threading.Event) -> AttemptResult:
        """Has the query run; takes reports until the process has ended, asks it to end when told to, and insists when it does not."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._stdin, b"go\n")
        batches, deadline, error, is_done = 0, None, None, False
        for line in self._read_lines():
            if stopping.is_set():
                deadline = self._ask_to_stop(deadline)
            if line is None:
                continue
            message = json.loads(line)
            match message["event"]:
                case "batch":
                    batches += 1
                    report(message)
                case "started":
                    _log.info("Spark has started; the first batch follows")
                case "failed":
                    error = rebuild_error(message["kind"], message["message"])
                case "done" | "stopped":
                    is_done = True
        code = self._process.wait()
        if error is None and not is_done and not stopping.is_set():
            error = RunFailed(
                f"its process was ended by signal {-code}"
                if code < 0
                else f"its process ended with code {code}"
            )
        return AttemptResult(error, batches)

    def end(self) -> None:
        """Ends all of its processes, and returns when none is left."""
        kill_session(self._process.pid, timeout=STOP_TIMEOUT)
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
            return time.monotonic() + STOP_TIMEOUT
        if time.monotonic() > deadline:
            self._process.kill()
        return deadline

    def _read_lines(self) -> Iterator[bytes | None]:
        """Lines as they come, and None now and then when none does, until the other end is closed."""
        rest, descriptor = b"", self._reports.fileno()
        while True:
            ready, _, _ = select.select([descriptor], [], [], 0.1)
            if not ready:
                yield None
                if not self.is_alive:
                    return
                continue
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
