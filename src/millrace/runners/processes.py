"""Processes that must not outlive those who started them."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_SESSION, _PARENT, _STATE = 3, 1, 0
"""Fields of /proc/PID/stat after the name of the program."""


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends, however that ends.
    Linux only; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def list_session(session: int) -> list[int]:
    """The living processes of a session: those that its leader started and that have not left it."""
    return [
        pid
        for pid, fields in _read_process_table()
        if int(fields[_SESSION]) == session and fields[_STATE] != "Z"
    ]


def kill_session(session: int, *, timeout: float) -> None:
    """Kills what is left of a session and returns when nothing is; it never leaves orphans."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        remaining = list_session(session)
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not remaining or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def list_tree(root: int) -> list[int]:
    """A process and all its descendants."""
    parents = {pid: int(fields[_PARENT]) for pid, fields in _read_process_table()}
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def kill_trees(roots: Iterable[int], *, timeout: float) -> None:
    """Kills processes with all their descendants, also those that have a session of their own,
    and returns when none is left.
    """
    deadline = time.monotonic() + timeout
    targets = set(roots)
    while time.monotonic() < deadline:
        targets |= {pid for root in tuple(targets) for pid in list_tree(root)}
        remaining = targets & {pid for pid, fields in _read_process_table() if fields[_STATE] != "Z"}
        if not remaining:
            return
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether such a process exists, and is more than a name nobody has collected yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return all(found != pid or fields[_STATE] != "Z" for found, fields in _read_process_table())


def _read_process_table() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            yield int(entry.name), (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
