"""A query in this very process: for measurements and tests, which want to watch it closely. Others are supervised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.errors import StateMismatch
from millrace.runners.spark import query, savepoint, session
from millrace.runners.spark.supervisor.supervise import prepare_task
from millrace.runners.state.evolution import StateChanges
from millrace.runners.state.folder import StateFolder, lock_folder
from millrace.runners.state.quarantine import Quarantine
from millrace.runners.state.savepoint import Savepoint, write_savepoint
from millrace.stream import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    until_caught_up: bool = False,
    spark: SparkSession | None = None,
    report: query.Report = lambda batch, results: None,  # noqa: ARG005 - nobody is told
    stop: Callable[[], bool] = lambda: False,
    retry: Sequence[str] = (),
    state_changes: StateChanges | None = None,
    restore: Path | None = None,
    take_over: bool = False,
) -> None:
    """Runs the query until it has caught up or `stop` says so, in the given session or a new one."""
    with lock_folder(settings.state.dir / settings.run.name) as folder:
        task = prepare_task(
            folder,
            jobs,
            settings,
            until_caught_up=until_caught_up,
            state_changes=state_changes,
            restore=restore,
            take_over=take_over,
        )
        Quarantine(folder.path).release(retry, [job.name for job in jobs])
        with folder.with_scratch():
            query.run(
                spark or _open_session(settings, task.identity.partitions, folder),
                task,
                report=report,
                stop=stop,
                poll_seconds=0.05,
            )


def save_stopped_run(
    folder: StateFolder, target: Path, settings: Settings, spark: SparkSession | None = None
) -> Savepoint:
    """A savepoint of a stopped run on Spark, read in the given session or one that is there for no longer."""
    identity = folder.read_identity()
    assert identity is not None
    with folder.with_scratch():
        spark_session = spark or _open_session(settings, identity.partitions, folder)
        try:
            saved = savepoint.read_savepoint(spark_session, folder.path, identity, "make the savepoint")
        finally:
            if spark is None:
                spark_session.stop()
    if saved is None:
        raise StateMismatch(f"{folder.path} holds no state yet, as no batch was done; run its jobs first")
    write_savepoint(saved, target)
    return saved


def _open_session(settings: Settings, partitions: int, folder: StateFolder) -> SparkSession:
    return session.open_session(
        settings.spark,
        name=settings.run.name,
        partitions=partitions,
        scratch=folder.scratch,
        lock=folder.lock,
        output=folder.spark_log,
    )
