"""What Spark reports when a query stops, as an error that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

from millrace import errors
from millrace.errors import LogError, LogUnreachable, MillraceError, RunFailed, StateUnwritable

_OURS = re.compile(r"millrace\.errors\.(\w+): (.*)")
_PYTHON = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)): (.+)$", re.MULTILINE)
_DISK = re.compile(r"No space left on device|Read-only file system|Permission denied|Disk quota exceeded")

_MEMORY = re.compile(r"OutOfMemoryError|in _receive_proto_message\n[\s\S]{0,500}?raise EOFError")
"""Where its heap is full, the JVM also drops the line to a task's state, and the worker finds the end of it."""


def explain(error: BaseException, *, state: Path) -> MillraceError:
    """The cause in our own words where it is known; `RunFailed` with its last word where it is not."""
    if isinstance(error, MillraceError):
        return error
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return rebuilt(*ours[-1])
    disk = _DISK.search(text)
    if disk:
        return StateUnwritable(
            f"state folder {state}: {disk[0]}; make room or make it writable. Nothing is lost: the run goes on from its last complete batch"
        )
    if _MEMORY.search(text):
        return RunFailed(
            f"the memory of Spark's JVM is too small; raise spark.driver_memory, or take fewer events a batch (run.max_events_per_batch). Its own words are in {state / 'spark.log'}"
        )
    return RunFailed(summary(text) or type(error).__name__)


def rebuilt(kind: str, message: str) -> MillraceError:
    """An error that came from another process by name."""
    cls = getattr(errors, kind, RunFailed)
    found = cls if isinstance(cls, type) and issubclass(cls, MillraceError) else RunFailed
    return found(message)


def may_pass(error: MillraceError) -> bool:
    """Whether trying again could help: what a user must mend is not tried again."""
    return type(error) in (RunFailed, LogError, LogUnreachable)


def summary(text: str) -> str:
    """The line of a long report that says most: the last Python exception, else the innermost Java one, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [f"{kind}: {said}" for kind, said in _PYTHON.findall(text) if kind not in ("StreamingQueryException", "SparkException")]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (python or java or lines[:1])[-1][:500] if lines else ""
