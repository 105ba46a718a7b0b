"""The state folder of a run: its lock, the jobs it belongs to, and the files in it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millrace.errors import StateInUse, StateMismatch, StateUnreadable, StateUnwritable
from millrace.runners.processes import is_alive
from millrace.values.atomic_files import write_file

STATE_FORMAT = 2
"""The format of all that a state folder or a savepoint holds.

It changes whenever state that was stored before could be misread: format 2 brought explicit identities of
operators. `identity.json`, the facts of `local.db` and of savepoints, and Spark's checkpoints carry it. What
carries no number is of format 1.
"""
_CHECKPOINT_FORMAT = "millrace-format"
"""The file in Spark's checkpoint folder that holds the format."""
LOCK_TIMEOUT = 20.0
"""Seconds that a run waits until the JVM of a run that has died releases the lock."""


@dataclass(frozen=True)
class Identity:
    """The jobs and the state that a folder is bound to."""

    id: str
    """Told apart from any other state, also of the same name: it names the marker in the log."""
    jobs: tuple[str, ...]
    fingerprint: str
    slots: int
    partitions: int
    format: int = STATE_FORMAT
    operators: Mapping[str, str] = field(default_factory=dict)
    """The fingerprint of each operator: all that its state depends on."""
    births: Mapping[str, int] = field(default_factory=dict)
    """Jobs that joined later, and how far event time had come then."""
    base: int = 0
    """On Spark: how many batches were done before its checkpoint was made anew, as jobs,
    slots or partitions had changed.
    """
    heir_of: str | None = None
    """The state that made the savepoint with which this one began; its topics are inherited."""


@dataclass(frozen=True)
class StateFolder:
    """A folder that this process has locked."""

    path: Path
    lock: int
    """The file descriptor that holds the lock; a process that inherits it holds the lock too."""

    @property
    def is_spark(self) -> bool:
        """Whether a run on Spark has been here, or is to begin with what was restored."""
        known = self.read_identity()
        return known is not None and (
            checkpoint_path(self.path, known).exists() or seed_path(self.path, known).exists()
        )

    @property
    def scratch(self) -> Path:
        """Spark's temporary files."""
        return self.path / "scratch"

    @property
    def spark_log(self) -> Path:
        """The output of Spark and its workers."""
        return self.path / "spark.log"

    @property
    def task_file(self) -> Path:
        """The plan and settings, for the process that runs the query."""
        return self.path / "task.pickle"

    def read_identity(self) -> Identity | None:
        """The identity of the folder; None for a new one."""
        try:
            fields = decode_checked((self.path / "identity.json").read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unwritable_error(self.path, error) from error
        except ValueError as error:
            raise StateUnreadable(
                f"{self.path}/identity.json is damaged ({error}), so it cannot be told whose state this is; "
                "restore the folder from a backup, or start a new one from a savepoint (--restore FILE)"
            ) from error
        check_folder_format(self.path, fields.get("format"))
        try:
            return Identity(**{**fields, "jobs": tuple(fields["jobs"])})
        except (TypeError, KeyError) as error:
            raise StateUnreadable(
                f"{self.path}/identity.json is damaged ({error}); restore the folder from a backup"
            ) from error

    @contextlib.contextmanager
    def mark_restoring(self) -> Iterator[None]:
        """Marks the folder while a savepoint is restored into it: no run continues with a part of it."""
        with explain_write_errors(self.path):
            self._restoring_marker.touch()
        yield
        with explain_write_errors(self.path):
            self._restoring_marker.unlink()

    def check_restored(self) -> None:
        """Refuses a folder into which a savepoint was put only in part."""
        if self._restoring_marker.exists():
            raise StateMismatch(
                f"{self.path} has only a part of a savepoint, as the run was killed while it was restored; "
                "run it with --restore FILE again"
            )

    @property
    def _restoring_marker(self) -> Path:
        return self.path / "restoring"

    def check_new(self) -> None:
        """Refuses to restore a savepoint over other state; what was restored in part makes room."""
        if self._restoring_marker.exists():
            for file in (self.path / "identity.json", *self.path.glob("local.db*")):
                file.unlink(missing_ok=True)
        if self.read_identity() is not None:
            raise StateMismatch(
                f"{self.path} holds state already; leave out --restore to go on with it, or restore into "
                "another state.dir, which then takes its topics over"
            )

    def bind(self, *, jobs: tuple[str, ...], fingerprint: str, slots: int, partitions: int) -> Identity:
        """Binds a new folder to these jobs, or checks that it is theirs."""
        known = self.read_identity()
        if known is None:
            known = Identity(uuid.uuid4().hex, jobs, fingerprint, slots, partitions)
            self._write("identity.json", encode_checked(asdict(known)))
        if sorted(known.jobs) != sorted(jobs):
            raise StateMismatch(
                f"{self.path} holds the state of {', '.join(known.jobs)}, not of {', '.join(jobs)}; run "
                "those jobs, or give the jobs that write other topics a run of their own "
                "(run.name or state.dir)"
            )
        if known.fingerprint != fingerprint:
            raise StateMismatch(
                f"{self.path}: {', '.join(jobs)} no longer has the keys, windows, aggregates or topics that "
                "its state was made with, so the state does not fit; undo the change, or compute results "
                "anew into a new version of the topics (millrace backfill)"
            )
        return known

    def rebind(self, identity: Identity) -> None:
        """Binds the folder to jobs as they are now."""
        self._write("identity.json", encode_checked(asdict(identity)))

    @contextlib.contextmanager
    def with_scratch(self) -> Iterator[None]:
        """With an empty scratch folder, which is gone afterwards;
        so is what a run that was killed had left in it.
        """
        shutil.rmtree(self.scratch, ignore_errors=True)
        with explain_write_errors(self.path):
            self.scratch.mkdir(exist_ok=True)
        try:
            yield
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def write_task(self, body: bytes) -> None:
        """Writes the task for the child process."""
        self._write("task.pickle", body)

    def _write(self, name: str, body: bytes) -> None:
        with explain_write_errors(self.path):
            write_file(self.path / name, body, durable=True)


def check_folder_format(path: Path, found: object) -> None:
    """Refuses a state folder of another format before anything else of it is read.
    `found`: the number that it carries, None if none.
    """
    if found != STATE_FORMAT:
        raise StateMismatch(
            f"state folder {path} {describe_format(found)}, so this version cannot read it; let that "
            "version finish the run, or begin anew from the start of the log: in another folder (--state "
            "FOLDER --take-over), or with results in new topics (millrace backfill JOB --version NAME)"
        )


def describe_format(found: object) -> str:
    """Which version of millrace wrote state of another format, as a part of a sentence."""
    number = 1 if found is None else found
    writer = "a later" if isinstance(number, int) and number > STATE_FORMAT else "an earlier"
    return (
        f"was written by {writer} version of millrace (format {number}; this version reads format "
        f"{STATE_FORMAT})"
    )


def encode_checked(fields: Mapping[str, Any]) -> bytes:
    """An object as JSON, with a checksum of all else under `check`."""
    return json.dumps({**fields, "check": _checksum(fields)}, indent=1).encode()


def decode_checked(body: bytes) -> dict[str, Any]:
    """The object of `encode_checked`; `ValueError` where its checksum does not fit."""
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - what is stored is wrong, not a type in code
    if fields.pop("check", None) != _checksum(fields):
        raise ValueError("its checksum does not fit")
    return fields


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def checkpoint_path(path: Path, identity: Identity) -> Path:
    """The folder of Spark's checkpoint."""
    return path / ("checkpoint" if not identity.base else f"checkpoint-{identity.base}")


def seed_path(path: Path, identity: Identity) -> Path:
    """The savepoint with which that checkpoint begins, if there is one."""
    return path / f"seed-{identity.base}-{identity.fingerprint}.savepoint"


def mark_checkpoint(checkpoint: Path) -> None:
    """Writes the format into a checkpoint folder, before Spark begins to use it."""
    if not _is_checkpoint_begun(checkpoint):
        with explain_write_errors(checkpoint.parent):
            checkpoint.mkdir(exist_ok=True)
            write_file(checkpoint / _CHECKPOINT_FORMAT, f"{STATE_FORMAT}\n".encode(), durable=True)


def check_checkpoints(path: Path) -> None:
    """Refuses a state folder with a checkpoint of another format, which the folder's identity,
    if it was lost, cannot tell.
    """
    for checkpoint in filter(_is_checkpoint_begun, path.glob("checkpoint*")):
        try:
            text = (checkpoint / _CHECKPOINT_FORMAT).read_text().strip()
        except FileNotFoundError:
            text = "1"
        check_folder_format(path, int(text) if text.isdecimal() else text)


def _is_checkpoint_begun(checkpoint: Path) -> bool:
    return any((checkpoint / name).exists() for name in ("metadata", "offsets"))


_locks: set[int] = set()
"""The locks of this process. A process that is forked, by a job's own code say, closes them: it would hold
the folder after the run has ended.
"""


def _close_locks() -> None:
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_close_locks)


@contextlib.contextmanager
def lock_folder(path: Path, *, timeout: float = LOCK_TIMEOUT) -> Iterator[StateFolder]:
    """Takes the folder, making it if need be; `StateInUse` names who has it."""
    path = path.absolute()
    with explain_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    _locks.add(lock)
    try:
        _acquire_lock(path, lock, timeout)
        with explain_write_errors(path):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield StateFolder(path, lock)
    finally:
        if lock in _locks:
            _locks.discard(lock)
            os.close(lock)


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Raises errors of writing with a remedy."""
    try:
        yield
    except OSError as error:
        raise unwritable_error(path, error) from error


def unwritable_error(path: Path, error: OSError) -> StateUnwritable:
    """The error of the operating system, with the remedy."""
    remedy = {
        errno.ENOSPC: "free some space on that disk",
        errno.EDQUOT: "free some space, your quota is used up",
        errno.EROFS: "mount its file system writable",
        errno.EACCES: f"allow it: chmod u+rwx {path}",
        errno.ENOTDIR: "a file is in the way: remove it",
        errno.EEXIST: "a file is in the way: remove it",
    }.get(error.errno or 0, "make it writable")
    return StateUnwritable(
        f"state folder {path}: {error.strerror or error}; {remedy}, or move the folder to where that is so "
        "(and set state.dir). Nothing is lost: the run goes on from its last complete batch"
    )


def _acquire_lock(path: Path, lock: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise unwritable_error(path, error) from error
        else:
            return
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        if (holder.isdigit() and is_alive(int(holder))) or time.monotonic() > deadline:
            raise StateInUse(
                f"state folder {path} is in use by process {holder or 'unknown'}; stop that run first; jobs "
                "that write other topics can have a run of their own (run.name or state.dir)"
            )
        time.sleep(0.1)
