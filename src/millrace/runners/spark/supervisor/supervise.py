"""Runs the query in a child process, and starts a new one from the checkpoint when it dies.

The supervisor holds the lock of the state folder and starts no Spark itself, so neither the JVM nor a worker
can take it down. Each child inherits the lock. So there is never a second run in the folder, not even while
the JVM of a killed supervisor still ends. A child and all its descendants are a session of processes, which
is killed as a whole before the next attempt begins: two queries never write at once.

Failures are counted in a row. A child that completed a batch sets the count back to 0, since the cause was
not there all the time.

Example: BACK_OFF is 1, 2, 5 and 10 s.

    10:00:00    attempt 1 dies without a batch            failures 1, wait 1 s
    10:00:20    attempt 2 completes 50 batches, dies      failures 1, no wait: the checkpoint is fine
    10:05:00    attempts 3 to 5 die without a batch       failures 2, 3 and 4, waits of 2, 5 and 10 s
    10:06:00    attempt 6 dies without a batch            the run gives up

An error that only a user can correct (a wrong password, a changed job) ends the run at once. With
`spark.standby`, a second child starts Spark as soon as the first one has completed a batch, rehearses on an
empty log, and waits; it takes over within a second.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.errors import ConfigError, RunFailed, StateMismatch
from millrace.log import open_log
from millrace.log.owners import Owner, claim_topics
from millrace.runners import java
from millrace.runners.batches import Offsets
from millrace.runners.bounded import check_ended
from millrace.runners.commit import Committer
from millrace.runners.signals import stop_signals
from millrace.runners.slots import choose_spark_layout
from millrace.runners.spark import session
from millrace.runners.spark.serialized_plan import pickle_by_value
from millrace.runners.spark.supervisor.attempt import Attempt, Report
from millrace.runners.spark.supervisor.failures import is_retryable
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import Identity, StateFolder, check_checkpoints, lock_folder, seed_path
from millrace.runners.state.quarantine import Quarantine
from millrace.runners.state.savepoint import adapt_savepoint, load_savepoint
from millrace.stream import Job

BACK_OFF = (1.0, 2.0, 5.0, 10.0)
"""Seconds before each new attempt, unless the last one completed a batch.
After as many failures in a row, the next one ends the run.
"""

STANDBY_AGAIN = 60.0
"""Seconds between two starts of a standby, so that one that dies at once is not started again and again."""

_log = logging.getLogger("millrace.run")


class StartOptions(TypedDict, total=False):
    """How a run on Spark starts and ends."""

    until_caught_up: bool
    """It ends when it has read what the log holds at its start."""
    until_end: bool
    """Then it also ends the streams."""
    state_changes: StateChanges | None
    """Jobs whose state is dropped or migrated."""
    restore: Path | None
    """A savepoint from which a new state folder starts."""
    take_over: bool
    """Topics that another state writes become this one's."""


def run(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    report: Report | None = None,
    retry: Sequence[str] = (),
    **options: Unpack[StartOptions],
) -> None:
    """Runs jobs as one query until Ctrl-C or SIGTERM, or until they have read what the log holds now, and
    have come to the end of it.

    Raises KeyboardInterrupt when stopped, after all processes that it started have ended.
    """
    java.find()
    _check_master(settings.spark.master)
    if settings.log.url.startswith("kafka:"):
        # if brokers are not reachable, the message appears here, not in Spark's output
        open_log(settings).close()
    with (
        lock_folder(settings.state.dir / settings.run.name) as folder,
        stop_signals(lambda: _describe_query(jobs)) as stopping,
    ):
        task = prepare_task(folder, jobs, settings, **options)
        quarantine = Quarantine(folder.path)
        quarantine.release(retry, [job.name for job in jobs])
        task = replace(task, retries_jobs=bool(quarantine.released))
        if quarantine.stops_all(task.plan):
            _refuse_to_start(task, quarantine)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            _run_in_process(task, folder, stopping)
        else:
            folder.write_task(pickle_by_value(task))
            _supervise(folder, settings, report or (lambda _: None), stopping)
    if stopping.is_set():
        raise KeyboardInterrupt


def _check_master(master: str) -> None:
    """Refuses a master of Spark's own that nobody is at: Spark would try for a minute, in silence."""
    if not master.startswith("spark://"):
        return
    problems: list[str] = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {error}")
        else:
            return
    raise ConfigError(
        f"spark.master = {master!r} cannot be reached ({'; '.join(problems)}); see that Spark's master runs "
        "there, or leave spark.master out to run on this machine"
    )


def _describe_query(jobs: Sequence[Job]) -> str:
    return f"the query of {', '.join(job.name for job in jobs)}"


def _refuse_to_start(task: Any, quarantine: Quarantine) -> None:
    """Raises `JobQuarantined` without starting Spark,
    after dead letters that a crash kept from the log are committed.
    """
    run = task.settings.run.name
    with (
        closing(open_log(task.settings)) as log,
        closing(
            Committer(log, task.plan, run=run, state=task.identity.id, quarantine=quarantine)
        ) as committer,
    ):
        committer.check_all_quarantined()


def prepare_task(
    folder: StateFolder,
    jobs: Sequence[Job],
    settings: Settings,
    *,
    until_caught_up: bool = False,
    until_end: bool = False,
    state_changes: StateChanges | None = None,
    restore: Path | None = None,
    take_over: bool = False,
) -> Any:
    """The task of the child process. Refuses state that the jobs do not fit, before Spark is started."""
    from millrace.runners.spark.query import QueryTask
    from millrace.runners.spark.savepoint import StateMove

    _check_folder(folder, is_restoring=restore is not None)
    identity, pending_changes = folder.read_identity(), state_changes or StateChanges()
    cores, depth = session.count_cores(settings.spark), Plan.of(jobs, slots=1).depth
    slots, partitions = choose_spark_layout(settings, identity, cores=cores, depth=depth)
    plan = Plan.of(jobs, slots=slots)
    _check_ended(folder, restore, plan, settings, until_caught_up=until_caught_up, until_end=until_end)
    if restore is not None:
        identity = _restore_savepoint(folder, restore, plan, settings, pending_changes, partitions)
        pending_changes = StateChanges()
    elif identity is None or not identity.operators:
        identity = _bind_folder(folder, plan, partitions)
    _claim_outputs(folder, plan, settings, identity, take_over=take_over)
    is_unchanged = (
        evolve(identity, plan, {}, pending_changes, str(folder.path)).states is None
        and identity.partitions == partitions
    )
    move = None if is_unchanged else StateMove(identity, pending_changes, partitions)
    return QueryTask(plan, settings, identity, folder.path, until_caught_up, until_end, move=move)


def _check_folder(folder: StateFolder, *, is_restoring: bool) -> None:
    """Refuses a folder with state that a run on Spark cannot continue, or that a savepoint would replace."""
    if (folder.path / "local.db").exists():
        raise StateMismatch(
            f"{folder.path} holds state of the local runner; go on with --on local, or take it to Spark: "
            "millrace savepoint FILE, then run with another state.dir and --restore FILE"
        )
    if is_restoring:
        folder.check_new()
    folder.check_restored()
    check_checkpoints(folder.path)


def _check_ended(
    folder: StateFolder, restore: Path | None, plan: Plan, settings: Settings, **modes: bool
) -> None:
    """Refuses state whose stream has ended."""
    from millrace.runners.spark.query import planned_offsets

    identity = folder.read_identity()
    offsets: Offsets | None = None
    is_unfinished = False
    if restore is not None:
        offsets = load_savepoint(restore).offsets
    elif identity is not None:
        offsets, is_unfinished = planned_offsets(folder.path, identity)
    if offsets is not None and offsets.ended:
        with closing(open_log(settings)) as log:
            check_ended(log, plan, offsets, str(folder.path), is_unfinished=is_unfinished, **modes)


def _restore_savepoint(
    folder: StateFolder,
    path: Path,
    plan: Plan,
    settings: Settings,
    state_changes: StateChanges,
    partitions: int,
) -> Identity:
    """Binds a new folder to the state of a savepoint, which is written as the seed of its checkpoint."""
    from millrace.runners.spark.savepoint import write_seed

    savepoint = adapt_savepoint(path, plan, state_changes)
    heir_of = load_savepoint(path).identity.id
    identity = replace(savepoint.identity, id=uuid.uuid4().hex, partitions=partitions, heir_of=heir_of)
    with closing(open_log(settings)) as log:
        write_seed(folder.path, replace(savepoint, identity=identity), plan, log)
    folder.rebind(identity)
    return identity


def _bind_folder(folder: StateFolder, plan: Plan, partitions: int) -> Identity:
    """Binds a new folder to the jobs, or one whose run ended before it knew its operators."""
    names = tuple(job.name for job in plan.jobs)
    identity = folder.bind(jobs=names, fingerprint=plan.fingerprint, slots=plan.slots, partitions=partitions)
    identity = replace(identity, operators=dict(plan.fingerprints))
    folder.rebind(identity)
    seed_path(folder.path, identity).unlink(missing_ok=True)
    return identity


def _claim_outputs(
    folder: StateFolder, plan: Plan, settings: Settings, identity: Identity, *, take_over: bool
) -> None:
    """Claims the output topics, so that no other state writes them."""
    with closing(open_log(settings)) as log:
        claim_topics(
            log,
            [topic.name for topic in plan.outputs],
            Owner(identity.id, settings.run.name),
            folder=str(folder.path),
            take_over=take_over,
            inherits_from=identity.heir_of,
        )


def _run_in_process(task: Any, folder: StateFolder, stopping: threading.Event) -> None:
    """Runs the query in this process: spark-submit has started the JVM already,
    and restarts are its business.
    """
    from millrace.runners.spark.supervisor.child import ReportWriter, run_task

    with folder.with_scratch(), Path(os.devnull).open("wb") as null_device:
        run_task(
            task, ReportWriter(null_device.fileno()), lock=None, stopping=stopping, scratch=folder.scratch
        )


def _supervise(folder: StateFolder, settings: Settings, report: Report, stopping: threading.Event) -> None:
    """Runs attempts until one ends without an error, or the run gives up."""
    failures, secrets, standbys, standby_due = 0, settings.kafka.secret_variables(), list[Attempt](), 0.0

    def handle_message(message: dict[str, Any]) -> None:
        nonlocal standby_due
        report(message)
        if standbys and not standbys[0].is_alive:
            standbys.pop().end()
        if settings.spark.standby and not standbys and time.monotonic() >= standby_due:
            standbys.append(Attempt(folder, secrets))
            standby_due = time.monotonic() + STANDBY_AGAIN

    with folder.with_scratch():
        try:
            while not stopping.is_set():
                attempt = standbys.pop() if standbys else Attempt(folder, secrets)
                try:
                    outcome = attempt.run(handle_message, stopping)
                finally:
                    attempt.end()
                if outcome.error is None or stopping.is_set():
                    return
                if not is_retryable(outcome.error):
                    raise outcome.error
                failures = 0 if outcome.batches else failures
                if failures == len(BACK_OFF):
                    raise _explain_giving_up(outcome.error, failures + 1, folder)
                wait = 0.0 if outcome.batches else BACK_OFF[failures]
                failures += 1
                _log.warning(
                    "the query stopped (%s); it starts again from its checkpoint %s (%d of %d)",
                    outcome.error,
                    f"in {wait:.0f} s" if wait else "now",
                    failures,
                    len(BACK_OFF),
                )
                stopping.wait(wait)
        finally:
            for standby in standbys:
                standby.end()


def _explain_giving_up(error: Exception, failures: int, folder: StateFolder) -> RunFailed:
    return RunFailed(
        f"the query failed {failures} times in a row without completing a batch; the "
        f"last error: {error}. Nothing is lost: correct the cause and run again. "
        f"Spark's own output is in {folder.spark_log}"
    )
