"""Reads, decodes and routes the next batch in background processes while Spark works on the current one.

Spark works on one batch at a time, and keyed work may leave cores idle. Where events wait in the log, the
range of the next batch is known early. Background processes are forked from the daemon of the workers. They
run at idle priority, so they take only time that is left over.

Worker and background process hand a task over by a file that is renamed. Each rename is atomic, so exactly
one of two processes wins.

    asked    a worker requests the task. The process that removes the file first reads the task: a background
             process, or the worker
    begun    a background process reads the task. It holds a lock on the file, which the kernel releases when
             the process dies
    ready    the file holds the packets

Invariant: a worker returns the packets of its task either from a `ready` file that is complete, or by reading
the log itself. Both give the same packets, since the task names the ranges of offsets. So nothing is lost if
a background process is slow, fails or dies.

Example: batch 8 is requested while batch 7 runs (times in milliseconds since the start of batch 7).

    0      worker: creates 8.asked, and works on batch 7
    1      background process: locks the file, renames it to 8.begun, reads the log
    40     background process: writes 8.ready, removes 8.begun, releases the lock
    60     worker, batch 8: 8.asked is gone, 8.begun is gone, so it takes 8.ready

    Not begun by 60: the worker removes 8.asked and reads the log. Nobody else can begin this task now.
    Not ready by 60: the worker waits for the lock, about as long as it would read itself. Then it removes
                     8.begun and reads the log; the background process sees that 8.begun is gone, and
                     writes nothing.
    Died at 20:      the lock is free, and there is no 8.ready, so the worker reads the log.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING

from millrace.values.atomic_files import write_file

if TYPE_CHECKING:
    from millrace.runners.spark.source import EncodedPacket, ReadTask, SourceSpec

FOLDER_VARIABLE = "MILLRACE_AHEAD"
"""The environment variable with the folder of requests; without it nothing is read ahead."""
MAX_PROCESSES = 4
"""At most so many background processes, one for each core otherwise."""
WAIT_SECONDS = 0.05, 2e-6
"""How many seconds a worker waits for a task that is being read, and how many more for each row: about as
long as it takes to read it. On a busy machine a background process at idle priority might not come to an end
at all.
"""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class _RequestQueue:
    """The folder of requests, and the pipe that wakes background processes."""

    folder: Path
    notify_pipe: int


_queue: _RequestQueue | None = None


def start_processes() -> None:
    """Forks the background processes, if there is a folder for requests.
    The daemon calls it before it forks the first worker.
    """
    global _queue  # noqa: PLW0603 - inherited by all workers
    if FOLDER_VARIABLE not in os.environ:
        return
    Path(os.environ[FOLDER_VARIABLE]).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=os.environ[FOLDER_VARIABLE]))
    wake_pipe, notify_pipe = os.pipe()
    for _ in range(min(MAX_PROCESSES, len(os.sched_getaffinity(0)))):
        if os.fork() == 0:
            os.close(notify_pipe)
            _serve_requests(folder, wake_pipe)
            os._exit(0)
    os.close(wake_pipe)
    os.set_blocking(notify_pipe, False)
    _queue = _RequestQueue(folder, notify_pipe)


def request_read(spec: SourceSpec, task: ReadTask) -> None:
    """Requests that a task is read ahead, unless it was requested before.
    Does nothing without background processes.
    """
    if _queue is None:
        return
    path = _request_path(_queue.folder, spec, task)
    # In the order in which a request is renamed: otherwise it could change its name between two looks, and be
    # missed.
    if any(path.with_suffix(suffix).exists() for suffix in (".asked", ".begun", ".ready")):
        return
    with contextlib.suppress(
        OSError
    ):  # no space, or no reader of the pipe: then the worker reads the log itself
        write_file(path.with_suffix(".asked"), pickle.dumps((spec, task)), durable=False)
        os.write(_queue.notify_pipe, b".")


def take_packets(spec: SourceSpec, task: ReadTask) -> list[EncodedPacket] | None:
    """The packets of a task, if it was read ahead.
    Waits a while for a task that was begun, and cancels one that was not.
    """
    if _queue is None:
        return None
    path = _request_path(_queue.folder, spec, task)
    with contextlib.suppress(FileNotFoundError):
        path.with_suffix(".asked").unlink()
        return None
    with contextlib.suppress(FileNotFoundError), path.with_suffix(".begun").open("rb") as begun_file:
        if not _wait_for_lock(begun_file, WAIT_SECONDS[0] + WAIT_SECONDS[1] * task.rows):
            path.with_suffix(".begun").unlink()
            return None
    with contextlib.suppress(FileNotFoundError):
        body = path.with_suffix(".ready").read_bytes()
        path.with_suffix(".ready").unlink()
        found: list[EncodedPacket] = pickle.loads(body)  # noqa: S301 - written by our own process
        return found
    return None


def _wait_for_lock(file: IO[bytes], timeout: float) -> bool:
    """Waits until the background process has released its lock on a request, by finishing or by dying;
    False: it has not in time.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.001)
    return False


def _request_path(folder: Path, spec: SourceSpec, task: ReadTask) -> Path:
    return folder / f"{spec.query_name}-{blake2b(repr(task.ranges).encode(), digest_size=12).hexdigest()}"


def _serve_requests(folder: Path, wake_pipe: int) -> None:
    """Processes requests, the oldest first, until the daemon and all workers have closed the pipe."""
    null_device = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_device, 0)
    os.dup2(null_device, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    while os.read(wake_pipe, 1):
        for asked in sorted(folder.glob("*.asked"), key=_request_time):
            if _process_request(asked):
                break


def _request_time(asked: Path) -> int:
    try:
        return asked.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _process_request(asked: Path) -> bool:
    """Processes a request; False if another process has begun it or a worker has cancelled it."""
    begun = asked.with_suffix(".begun")
    try:
        with asked.open("rb") as request:
            fcntl.flock(request, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asked.rename(begun)
            _write_packets(request.read(), asked, is_wanted=begun.exists)
            begun.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def _write_packets(request: bytes, path: Path, *, is_wanted: Callable[[], bool]) -> None:
    from millrace.runners.spark.source import read_packets

    spec, task = pickle.loads(request)  # noqa: S301 - written by our own workers
    try:
        packets = pickle.dumps(read_packets(spec, task))
        if is_wanted():
            write_file(path.with_suffix(".ready"), packets, durable=False)
    except Exception as error:  # noqa: BLE001 - the worker reads the log then, and reports the error
        _log.debug("reading ahead failed: %s", error)
