"""A query in this very process: for measurements and tests, which want to watch it closely. Others are supervised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.runners.folder import StateFolder, hold
from millrace.runners.quarantine import Quarantine
from millrace.runners.spark import query, session
from millrace.runners.spark.supervise import prepare
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
) -> None:
    """Runs the query until it has caught up or `stop` says so, in the given session or a new one."""
    with hold(settings.state.dir / settings.run.name) as folder:
        task = prepare(folder, jobs, settings, until_caught_up=until_caught_up)
        Quarantine(folder.path).release(retry, [job.name for job in jobs])
        with folder.working():
            query.run(spark or _session(task, folder), task, report=report, stop=stop, patience=0.05)


def _session(task: query.Task, folder: StateFolder) -> SparkSession:
    return session.open_session(
        task.settings.spark,
        name=task.settings.run.name,
        partitions=task.identity.partitions,
        scratch=folder.scratch,
        lock=folder.lock,
        output=folder.output,
    )
