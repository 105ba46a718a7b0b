"""Keeps a query running: in a process of its own, restarted from its checkpoint when it dies, and gone without a trace when stopped."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from millrace.config import Settings
from millrace.engine.plan import Plan
from millrace.errors import RunFailed, StateMismatch
from millrace.log import open_log
from millrace.log.owners import Owner, claim_topics
from millrace.runners import java
from millrace.runners.commit import Committer
from millrace.runners.signals import stop_signals
from millrace.runners.slots import choose_spark_layout
from millrace.runners.spark import session
from millrace.runners.spark.serialized_plan import pickle_by_value
from millrace.runners.spark.supervisor.attempt import Attempt, Report
from millrace.runners.spark.supervisor.failures import is_retryable
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import StateFolder, check_checkpoints, lock_folder, seed_path
from millrace.runners.state.quarantine import Quarantine
from millrace.runners.state.savepoint import adapt_savepoint, load_savepoint
from millrace.stream import Job

BACK_OFF = (1.0, 2.0, 5.0, 10.0)
"""Seconds before each new attempt, unless the last one had done a batch; after as many failures in a row without any, the run gives up."""

STANDBY_AGAIN = 60.0
"""Seconds between two starts of a session that stands by, lest one that cannot live is started again and again."""

_log = logging.getLogger("millrace.run")


def run(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    report: Report | None = None,
    retry: Sequence[str] = (),
    state_changes: StateChanges | None = None,
    restore: Path | None = None,
    take_over: bool = False,
) -> None:
    """Runs jobs as one query until Ctrl-C or SIGTERM, or until caught up with the log as it is now.

    `state_changes`: what becomes of the state of jobs that changed; `restore`: a savepoint from which a new state folder starts.

    When stopped it raises KeyboardInterrupt, after everything it had started is gone.
    """
    java.find()
    if settings.log.url.startswith("kafka:"):
        open_log(settings).close()  # whoever waits for brokers says so here, and not in Spark's own output
    with (
        lock_folder(settings.state.dir / settings.run.name) as folder,
        stop_signals(lambda: _describe_query(jobs)) as stopping,
    ):
        task = prepare_task(
            folder,
            jobs,
            settings,
            until_caught_up=until_caught_up,
            state_changes=state_changes,
            restore=restore,
            take_over=take_over,
        )
        quarantine = Quarantine(folder.path)
        quarantine.release(retry, [job.name for job in jobs])
        if quarantine.stops_all(task.plan):
            _refuse_to_start(task, quarantine)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            _run_in_process(task, folder, stopping)
        else:
            folder.write_task(pickle_by_value(task))
            _supervise(folder, settings, report or (lambda _: None), stopping)
    if stopping.is_set():
        raise KeyboardInterrupt


def _describe_query(jobs: Sequence[Job]) -> str:
    return f"the query of {', '.join(job.name for job in jobs)}"


def _refuse_to_start(task: Any, quarantine: Quarantine) -> None:
    """Raises `JobQuarantined` without starting Spark; letters that a crash kept from the log are committed first."""
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
    until_caught_up: bool,
    state_changes: StateChanges | None = None,
    restore: Path | None = None,
    take_over: bool = False,
) -> Any:
    """The task, with slots and partitions as the state has them unless others are asked for; refuses changed operators, with the choices."""
    from millrace.runners.spark.query import QueryTask
    from millrace.runners.spark.savepoint import StateMove, write_seed

    if (folder.path / "local.db").exists():
        raise StateMismatch(
            f"{folder.path} holds state of the local runner; go on with --on local, or take it to Spark: millrace savepoint FILE, then run with another state.dir and --restore FILE"
        )
    if restore is not None:
        folder.check_new()
    folder.check_restored()
    check_checkpoints(folder.path)
    identity, pending_changes = folder.read_identity(), state_changes or StateChanges()
    cores, depth = session.count_cores(settings.spark), Plan.of(jobs, slots=1).depth
    slots, partitions = choose_spark_layout(settings, identity, cores=cores, depth=depth)
    plan = Plan.of(jobs, slots=slots)
    if restore is not None:
        savepoint = adapt_savepoint(restore, plan, pending_changes)
        heir_of = load_savepoint(restore).identity.id
        identity, pending_changes = (
            replace(savepoint.identity, id=uuid.uuid4().hex, partitions=partitions, heir_of=heir_of),
            StateChanges(),
        )
        with closing(open_log(settings)) as log:
            write_seed(folder.path, replace(savepoint, identity=identity), plan, log)
        folder.rebind(identity)
    elif identity is None or not identity.operators:
        names = tuple(job.name for job in jobs)
        identity = folder.bind(
            jobs=names, fingerprint=plan.fingerprint, slots=plan.slots, partitions=partitions
        )
        identity = replace(identity, operators=dict(plan.fingerprints))
        folder.rebind(identity)
        seed_path(folder.path, identity).unlink(missing_ok=True)
    with closing(open_log(settings)) as log:
        outputs = [topic.name for topic in plan.outputs]
        claim_topics(
            log,
            outputs,
            Owner(identity.id, settings.run.name),
            folder=str(folder.path),
            take_over=take_over,
            inherits_from=identity.heir_of,
        )
    is_unchanged = (
        evolve(identity, plan, {}, pending_changes, str(folder.path)).states is None
        and identity.partitions == partitions
    )
    move = None if is_unchanged else StateMove(identity, pending_changes, partitions)
    return QueryTask(plan, settings, identity, folder.path, until_caught_up, move)


def _run_in_process(task: Any, folder: StateFolder, stopping: threading.Event) -> None:
    """Under spark-submit the JVM is there already, and whoever submitted looks after it."""
    from millrace.runners.spark.supervisor.child import ReportWriter, run_task

    with folder.with_scratch(), Path(os.devnull).open("wb") as null_device:
        run_task(
            task, ReportWriter(null_device.fileno()), lock=None, stopping=stopping, scratch=folder.scratch
        )


def _supervise(folder: StateFolder, settings: Settings, report: Report, stopping: threading.Event) -> None:
    """Attempt after attempt. With a standby, the next one gets ready as soon as the present one has done a batch, and takes over when that dies."""
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
                    raise RunFailed(
                        f"the query failed {failures + 1} times in a row without completing a batch; the last time: {outcome.error}. Nothing is lost: mend the cause and run again. Spark's own words are in {folder.spark_log}"
                    )
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
