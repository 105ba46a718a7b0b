"""Runs a query on Spark in this process, without a supervisor: for measurements and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from millrace.config import Settings
from millrace.runners.spark import query, session
from millrace.runners.spark.supervisor.supervise import StartOptions, prepare_task
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.quarantine import Quarantine
from millrace.stream import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    jobs: Sequence[Job],
    *,
    settings: Settings,
    spark: SparkSession | None = None,
    report: query.Report = lambda batch, results: None,  # noqa: ARG005 - not reported
    stop: Callable[[], bool] = lambda: False,
    retry: Sequence[str] = (),
    **options: Unpack[StartOptions],
) -> None:
    """Runs the query until it has caught up or `stop` says so, in the given session or a new one."""
    with lock_folder(settings.state.dir / settings.run.name) as folder:
        task = prepare_task(folder, jobs, settings, **options)
        quarantine = Quarantine(folder.path)
        quarantine.release(retry, [job.name for job in jobs])
        task = replace(task, retries_jobs=bool(quarantine.released))
        with folder.with_scratch():
            query.run(
                spark or session.open_in_folder(settings, task.identity.partitions, folder),
                task,
                report=report,
                stop=stop,
                poll_seconds=0.05,
            )
