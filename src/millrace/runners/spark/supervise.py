"""Keeps a query running: in a process of its own, restarted from its checkpoint when it dies, and gone without a trace when stopped."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millrace import java
from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.errors import MillraceError, RunFailed, StateMismatch
from millrace.log import open_log
from millrace.runners.evolution import Wishes, evolved
from millrace.runners.folder import StateFolder, hold, seed_of, writing
from millrace.runners.processes import end_session
from millrace.runners.quarantine import Quarantine
from millrace.runners.savepoint import restored
from millrace.runners.spark import session
from millrace.runners.spark.failures import may_pass, rebuilt
from millrace.runners.spark.shipped import pickled
from millrace.runners.stopping import stop_signals
from millrace.stream import Job

BACK_OFF = (1.0, 2.0, 5.0, 10.0)
"""Seconds before each new attempt; after as many failures in a row without a batch completed, the run gives up."""
GRACE = 15.0
"""Seconds that a query has to stop of its own accord."""

Report = Callable[[dict[str, Any]], None]
"""Told of each batch: its number, counts and watermarks."""

_log = logging.getLogger("millrace.run")


def run(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    report: Report | None = None,
    retry: Sequence[str] = (),
    wishes: Wishes | None = None,
    restore: Path | None = None,
) -> None:
    """Runs jobs as one query until Ctrl-C or SIGTERM, or until caught up with the log as it is now.

    `wishes`: what becomes of the state of jobs that changed; `restore`: a savepoint from which a new state folder starts.

    When stopped it raises KeyboardInterrupt, after everything it had started is gone.
    """
    java.find()
    if settings.log.url.startswith("kafka:"):
        open_log(settings).close()  # whoever waits for brokers says so here, and not in Spark's own output
    with hold(settings.state.dir / settings.run.name) as folder, stop_signals() as stopping:
        task = prepare(folder, jobs, settings, until_caught_up=until_caught_up, wishes=wishes, restore=restore)
        quarantine = Quarantine(folder.path)
        quarantine.release(retry, [job.name for job in jobs])
        quarantine.plan(task.plan)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            _in_this_process(task, folder, stopping)
        else:
            folder.write_task(pickled(task))
            _supervise(folder, report or (lambda _: None), stopping, settings.kafka.secrets())
    if stopping.is_set():
        raise KeyboardInterrupt


def prepare(
    folder: StateFolder,
    jobs: Sequence[Job],
    settings: Settings,
    *,
    until_caught_up: bool,
    wishes: Wishes | None = None,
    restore: Path | None = None,
) -> Any:
    """The task, with slots and partitions as the state has them unless others are asked for; refuses changed operators, with the choices."""
    from millrace.runners.spark.moving import Move, plant
    from millrace.runners.spark.query import Task

    if (folder.path / "local.db").exists():
        raise StateMismatch(
            f"{folder.path} holds state of the local runner; go on with --on local, or name another folder (state.dir) or run (run.name)"
        )
    if restore is not None:
        folder.check_new()
    known, cores, asked = folder.identity(), session.cores(settings.spark), wishes or Wishes()
    partitions = settings.spark.partitions or (known.partitions if known else min(cores, settings.spark.slots or cores))
    plan = Plan.of(jobs, slots=settings.spark.slots or (known.slots if known else min(128, 2 * partitions)))
    if restore is not None:
        saved = restored(restore, plan, asked)
        known, asked = replace(saved.identity, id=uuid.uuid4().hex, partitions=partitions), Wishes()
        with closing(open_log(settings)) as log:
            plant(folder.path, replace(saved, identity=known), plan, log)
        folder.rebind(known)
    elif known is None or not known.operators:
        names = tuple(job.name for job in jobs)
        known = folder.bind(jobs=names, fingerprint=plan.fingerprint, slots=plan.slots, partitions=partitions)
        known = replace(known, operators=dict(plan.fingerprints))
        folder.rebind(known)
        seed_of(folder.path, known).unlink(missing_ok=True)
    same = evolved(known, plan, {}, asked, str(folder.path)).states is None and known.partitions == partitions
    move = None if same else Move(known, asked, partitions)
    return Task(plan, settings, known, folder.path, until_caught_up, move)


def _in_this_process(task: Any, folder: StateFolder, stopping: threading.Event) -> None:
    """Under spark-submit the JVM is there already, and whoever submitted looks after it."""
    from millrace.runners.spark.child import Reports, work

    with folder.working(), Path(os.devnull).open("wb") as nowhere:
        work(task, Reports(nowhere.fileno()), lock=None, stopping=stopping)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    error: MillraceError | None
    """None: it did what it was asked to."""
    batches: int


def _supervise(folder: StateFolder, report: Report, stopping: threading.Event, secrets: Mapping[str, str]) -> None:
    """`secrets`: passwords for the child, in its environment, as the task in the folder holds none."""
    failures = 0
    while not stopping.is_set():
        with folder.working():
            outcome = _attempt(folder, report, stopping, secrets)
        if outcome.error is None or stopping.is_set():
            return
        if not may_pass(outcome.error):
            raise outcome.error
        failures = 0 if outcome.batches else failures
        if failures == len(BACK_OFF):
            raise RunFailed(
                f"the query failed {failures + 1} times in a row without completing a batch; the last time: {outcome.error}. Nothing is lost: mend the cause and run again. Spark's own words are in {folder.output}"
            )
        wait = BACK_OFF[failures]
        failures += 1
        _log.warning(
            "the query stopped (%s); it starts again from its checkpoint in %.0f s (%d of %d)", outcome.error, wait, failures, len(BACK_OFF)
        )
        stopping.wait(wait)


def _attempt(folder: StateFolder, report: Report, stopping: threading.Event, secrets: Mapping[str, str]) -> Outcome:
    reader, writer = os.pipe()
    with writing(folder.path), folder.output.open("ab") as output, os.fdopen(reader, "rb", buffering=0) as reports:
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "millrace.runners.spark.child", str(folder.task), str(writer), str(folder.lock), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer, folder.lock),
                start_new_session=True,
                env={**os.environ, **secrets, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            )
        finally:
            os.close(writer)
        try:
            return _follow(child, reports.fileno(), report, stopping)
        finally:
            end_session(child.pid, patience=GRACE)
            child.wait()


def _follow(child: subprocess.Popen[bytes], reports: int, report: Report, stopping: threading.Event) -> Outcome:
    """Takes reports until the child has ended; asks it to end when told to, and insists when it does not."""
    batches, deadline, error, ended = 0, None, None, False
    for line in _lines(child, reports):
        if stopping.is_set():
            deadline = _ask_to_stop(child, deadline)
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
    code = child.wait()
    if error is None and not ended and not stopping.is_set():
        error = RunFailed(f"its process was ended by signal {-code}" if code < 0 else f"its process ended with code {code}")
    return Outcome(error, batches)


def _ask_to_stop(child: subprocess.Popen[bytes], deadline: float | None) -> float:
    if deadline is None:
        child.terminate()
        return time.monotonic() + GRACE
    if time.monotonic() > deadline:
        child.kill()
    return deadline


def _lines(child: subprocess.Popen[bytes], descriptor: int) -> Iterator[bytes | None]:
    """Lines as they come, and None now and then when none does, until the other end is closed."""
    rest = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 0.1)
        if not ready:
            yield None
            if child.poll() is not None:
                return
            continue
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
