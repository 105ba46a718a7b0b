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

if TYPE_CHECKING:
    from millrace.engine.exchange import Packet
    from millrace.runners.spark.source import Feed, Share

FOLDER = "MILLRACE_AHEAD"
"""The variable that says where requests may be kept; without it nobody reads ahead."""
MOST = 4
"""As many processes, at most; else one for each core: they work when nobody else wants to."""
PATIENCE = 0.05, 2e-6
"""How many seconds a worker waits for a share that is being read, and how many more for each row: about as long as reading it takes. On a busy machine
it might not come at all."""

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class _Desk:
    """Where requests lie, and the pipe that says there is a new one."""

    folder: Path
    bell: int


_desk: _Desk | None = None


def begin() -> None:
    """Forks the processes that read ahead, if there is a folder for it; in the daemon, before its first worker."""
    global _desk  # noqa: PLW0603 - inherited by all workers
    if FOLDER not in os.environ:
        return
    Path(os.environ[FOLDER]).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=os.environ[FOLDER]))
    hears, bell = os.pipe()
    for _ in range(min(MOST, len(os.sched_getaffinity(0)))):
        if os.fork() == 0:
            os.close(bell)
            _serve(folder, hears)
            os._exit(0)
    os.close(hears)
    os.set_blocking(bell, False)
    _desk = _Desk(folder, bell)


def ask(feed: Feed, share: Share) -> None:
    """Has a share read ahead, unless it is already; without anybody to do so, nothing happens."""
    if _desk is None:
        return
    place = _place(_desk.folder, feed, share)
    if any(
        place.with_suffix(suffix).exists() for suffix in (".asked", ".begun", ".ready")
    ):  # in this order: so no change is missed
        return
    with contextlib.suppress(OSError):  # no room, or nobody there: then the worker reads by itself
        place.write_bytes(pickle.dumps((feed, share)))
        place.rename(place.with_suffix(".asked"))
        os.write(_desk.bell, b".")


def taken(feed: Feed, share: Share) -> list[Packet] | None:
    """The packets of a share, if they were read ahead; one that is being read is waited for a while, one that is not begun is called off."""
    if _desk is None:
        return None
    place = _place(_desk.folder, feed, share)
    with contextlib.suppress(FileNotFoundError):
        place.with_suffix(".asked").unlink()
        return None
    with contextlib.suppress(FileNotFoundError), place.with_suffix(".begun").open("rb") as begun:
        if not _locked(begun, PATIENCE[0] + PATIENCE[1] * share.rows):
            place.with_suffix(".begun").unlink()
            return None
    with contextlib.suppress(FileNotFoundError):
        body = place.with_suffix(".ready").read_bytes()
        place.with_suffix(".ready").unlink()
        found: list[Packet] = pickle.loads(body)  # noqa: S301 - written by our own process
        return found
    return None


def _locked(file: IO[bytes], patience: float) -> bool:
    """Whether whoever works on a request has let go of it, or does so soon."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.001)
    return False


def _place(folder: Path, feed: Feed, share: Share) -> Path:
    return folder / f"{feed.name}-{blake2b(repr(share.ranges).encode(), digest_size=12).hexdigest()}"


def _serve(folder: Path, hears: int) -> None:
    """Works off requests, the oldest first, until all who could ask are gone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    while os.read(hears, 1):
        for asked in sorted(folder.glob("*.asked"), key=_age):
            if _work(asked):
                break


def _age(asked: Path) -> int:
    try:
        return asked.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _work(asked: Path) -> bool:
    """Works off a request, unless another does so or a worker has called it off meanwhile."""
    begun = asked.with_suffix(".begun")
    try:
        with asked.open("rb") as request:
            fcntl.flock(request, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asked.rename(begun)
            _answer(request.read(), asked, wanted=begun.exists)
            begun.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True


def _answer(request: bytes, place: Path, *, wanted: Callable[[], bool]) -> None:
    from millrace.runners.spark.source import packets

    feed, share = pickle.loads(request)  # noqa: S301 - written by our own workers
    draft = place.with_suffix(".draft")
    try:
        draft.write_bytes(pickle.dumps(packets(feed, share)))
        if wanted():
            draft.rename(place.with_suffix(".ready"))
    except Exception as error:  # noqa: BLE001 - the worker will meet it, too, and say so
        _log.debug("reading ahead: %s", error)
    draft.unlink(missing_ok=True)
