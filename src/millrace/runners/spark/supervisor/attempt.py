"""One attempt at running the query: a child process that starts Spark,
waits for its turn, and reports each batch.
"""

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
"""Seconds that a query has to stop before it is killed."""

Report = Callable[[dict[str, Any]], None]
"""Called with the message of each batch: its number, counts and watermarks."""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended."""

    error: MillraceError | None
    """None: it was stopped, or has caught up."""
    batches: int


class Attempt:
    """A child process that starts Spark at once, and its query when `run` is called."""

    def __init__(self, folder: StateFolder, secrets: Mapping[str, str]) -> None:
        """`secrets`: passwords for the environment of the process, since the task file holds none."""
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
        """Whether the process has not ended."""
        return self._process.poll() is None

    def run(self, report: Report, stopping: threading.Event) -> AttemptResult:
        """Starts the query and passes its reports on until the process has ended.
        When `stopping` is set, the process is terminated, and killed if it goes on.
        """
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
        """Kills the child with all its descendants, and returns when none is left."""
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
        """Lines of reports, and None every 0.1 s without one, until the process has closed its end."""
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
