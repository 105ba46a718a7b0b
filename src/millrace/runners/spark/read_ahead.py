"""Reading ahead: while a batch is worked on, processes beside the workers read, decode and route what the next one will take.

Spark works on one batch at a time, and what is keyed may leave cores idle; what the log holds for the next batch is known already
where events wait. They are forked from the daemon of the workers, as these are, and share a folder with them. A request is a file that changes its name:
`asked` by a worker, `begun` (and locked) by whoever works on it, `ready` when it holds packets. Nothing depends on it: what is not begun when
it is needed, or failed, or died, is read by the worker itself.
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
"""The variable that says where requests may be kept; without it nobody reads ahead."""
MAX_PROCESSES = 4
"""As many processes, at most; else one for each core: they work when nobody else wants to."""
WAIT_SECONDS = 0.05, 2e-6
"""How many seconds a worker waits for a share that is being read, and how many more for each row: about as long as reading it takes. On a busy machine
it might not come at all."""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class _RequestQueue:
    """Where requests lie, and the pipe that says there is a new one."""

    folder: Path
    notify_pipe: int


_queue: _RequestQueue | None = None


def start_processes() -> None:
    """Forks the processes that read ahead, if there is a folder for it; in the daemon, before its first worker."""
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
    """Has a share read ahead, unless it is already; without anybody to do so, nothing happens."""
    if _queue is None:
        return
    path = _request_path(_queue.folder, spec, task)
    if any(
        path.with_suffix(suffix).exists() for suffix in (".asked", ".begun", ".ready")
    ):  # in this order: so no change is missed
        return
    with contextlib.suppress(OSError):  # no room, or nobody there: then the worker reads by itself
        write_file(path.with_suffix(".asked"), pickle.dumps((spec, task)), durable=False)
        os.write(_queue.notify_pipe, b".")


def take_packets(spec: SourceSpec, task: ReadTask) -> list[EncodedPacket] | None:
    """The packets of a share, if they were read ahead; one that is being read is waited for a while, one that is not begun is called off."""
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
    """Whether whoever works on a request has let go of it, or does so soon."""
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
    """Works off requests, the oldest first, until all who could ask are gone."""
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
    """Works off a request, unless another does so or a worker has called it off meanwhile."""
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
    except Exception as error:  # noqa: BLE001 - the worker will meet it, too, and say so
        _log.debug("reading ahead: %s", error)
