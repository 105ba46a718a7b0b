"""Turns what Spark reports when a query fails into an error with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

from millrace import errors
from millrace.engine.state import damage_error
from millrace.errors import (
    ComponentMissing,
    ConfigError,
    LogDenied,
    LogError,
    LogUnreachable,
    MillraceError,
    RunFailed,
    StateUnwritable,
)

_OWN_ERROR = re.compile(r"millrace\.errors\.(\w+): (.*)")
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)): (.+)$", re.MULTILINE)
_DISK_ERROR = re.compile(
    r"No space left on device|Read-only file system|Permission denied|Disk quota exceeded"
)

_DAMAGE_ERROR = re.compile(
    r"^.*?((?:Checksum error|ChecksumException|Corruption: |CorruptionException|ZipException"
    r"|checksum mismatch)[^\n]{0,300})",
    re.MULTILINE,
)
"""Messages of Hadoop's file system and RocksDB about damaged files."""

_MEMORY_ERROR = re.compile(r"OutOfMemoryError|in _receive_proto_message\n[\s\S]{0,500}?raise EOFError")
"""When its heap is full, the JVM also closes the connection for a task's state,
and the worker reads its end.
"""

_NO_MODULE = re.compile(r"No module named '([^']+)'")
_INSTALLATION_ERROR = re.compile(
    r"PYTHON_VERSION_MISMATCH|ClassNotFoundException|UnsupportedClassVersionError|Can't get attribute"
)
"""Messages when executors have other versions installed than the driver; another attempt does not help."""
_SETTINGS_ERROR = re.compile(
    r"Could not parse Master URL|JavaSparkContext\.\n: [\w.$]*(?:IllegalArgument|NumberFormat)Exception"
)
"""Messages when no session can be made with these settings."""
_ACCESS_ERROR = re.compile(r"\b\w*(?:Authentication|Authorization|AccessControl|Login)Exception\b.*")
"""Java's exceptions for a wrong password, a certificate that is not trusted, or missing rights."""
_JVM_START_ERROR = re.compile(
    r'^Exception in thread "main" (?:[\w.$]+: )?(.+)$'
    r"|^((?:Invalid|Unrecognized|Improperly specified|Initial heap) .+)$",
    re.MULTILINE,
)
"""Output of a JVM that does not start with these settings."""
_TAIL = 20_000
"""How many bytes at the end of Spark's output are searched for it."""


def explain_failure(error: BaseException, *, state: Path, since: int = 0) -> MillraceError:
    """An error with a remedy where the cause is known, else `RunFailed` with Spark's last message.

    `since`: the size of Spark's output file when this attempt began.
    """
    if isinstance(error, MillraceError):
        return error
    text = str(error)
    own_errors = _OWN_ERROR.findall(text)
    if own_errors:
        return rebuild_error(*own_errors[-1])
    disk = _DISK_ERROR.search(text)
    if disk:
        return StateUnwritable(
            f"state folder {state}: {disk[0]}; make room or make it writable. Nothing is lost: the run goes "
            "on from its last complete batch"
        )
    if broken := _DAMAGE_ERROR.search(text):
        return damage_error(str(state), "Spark's checkpoint", broken[1].strip())
    if _MEMORY_ERROR.search(text):
        return RunFailed(
            "the memory of Spark's JVM is too small; raise spark.driver_memory, or read fewer events per "
            f"batch (run.max_events_per_batch). Spark's output is in {state / 'spark.log'}"
        )
    if "JAVA_GATEWAY_EXITED" in text and (reason := _find_jvm_error(state / "spark.log", since)):
        return _session_error(reason, state)
    return _explain_summary(summarize(text) or type(error).__name__, text, state)


def _explain_summary(summary_line: str, text: str, state: Path) -> MillraceError:
    """An error whose cause shows in the last line of Spark's message."""
    if _SETTINGS_ERROR.search(text):
        return _session_error(summary_line, state)
    if denied := _ACCESS_ERROR.search(summary_line):
        return LogDenied(
            f"{denied[0]}; correct the password, the certificate or the rights, and "
            "run again. Nothing is lost"
        )
    if missing := _NO_MODULE.search(summary_line):
        return ComponentMissing(
            f"module {missing[1]!r} is missing where Spark's workers run, so the jobs cannot be loaded "
            "there; install it on every executor, or send it along: spark.submit.pyFiles or spark.archives "
            "under [spark.conf]"
        )
    if _INSTALLATION_ERROR.search(summary_line):
        return ComponentMissing(
            f"{summary_line}; Spark's workers have something else installed than this process: install the "
            "same Python, packages and jars on every executor"
        )
    return RunFailed(summary_line)


def _session_error(reason: str, state: Path) -> ConfigError:
    return ConfigError(
        f"Spark does not start with these settings: {reason}; correct spark.master, spark.conf or the "
        f"environment. Spark's output is in {state / 'spark.log'}"
    )


def _find_jvm_error(output: Path, since: int) -> str | None:
    """The last reason that the JVM printed for not starting, if any."""
    try:
        with output.open("rb") as file:
            file.seek(max(since, output.stat().st_size - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    found = _JVM_START_ERROR.findall(text)
    return next(filter(None, found[-1])).strip()[:500] if found else None


def rebuild_error(kind: str, message: str) -> MillraceError:
    """The error that another process reported by the name of its class."""
    cls = getattr(errors, kind, RunFailed)
    found = cls if isinstance(cls, type) and issubclass(cls, MillraceError) else RunFailed
    return found(message)


def is_retryable(error: MillraceError) -> bool:
    """Whether another attempt could help. It cannot where the user has to correct something."""
    return type(error) in (RunFailed, LogError, LogUnreachable)


def summarize(text: str) -> str:
    """The most telling line of a long report: the last Python exception,
    else the innermost Java one, else the first line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [
        f"{kind}: {message}"
        for kind, message in _PYTHON_ERROR.findall(text)
        if kind not in ("StreamingQueryException", "SparkException")
    ]
    java = [
        message for line in lines if (message := line.removeprefix(": ").removeprefix("Caused by: ")) != line
    ]  # ": " is Py4J's
    return (python or java or lines[:1])[-1][:500] if lines else ""
