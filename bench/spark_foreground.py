"""A query in this very process: for measurements and tests, which want to watch it closely. Others are supervised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.runners.spark import query, session
from millrace.runners.spark.supervisor.supervise import prepare_task
from millrace.runners.state.evolution import StateChanges
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.quarantine import Quarantine
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
                spark or session.open_in_folder(settings, task.identity.partitions, folder),
                task,
                report=report,
                stop=stop,
                poll_seconds=0.05,
            )
