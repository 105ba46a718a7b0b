"""The process that runs the query:
`python -m millrace.runners.spark.supervisor.child TASK REPORT LOCK PARENT SCRATCH`, started by the
supervisor.

It starts Spark at once, and the query when it reads `go` from its standard input. Until then it is a standby.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from millrace.engine.sink import Results
from millrace.runners.processes import die_with_parent
from millrace.runners.spark import query, session
from millrace.runners.spark.supervisor.failures import explain_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReportWriter:
    """Writes reports for the supervisor, one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.has_reported = False
        """Whether the query has started; before that, there is nothing to stop."""

    def __call__(self, **fields: Any) -> None:
        """Writes one line, and ends this process if the supervisor has ended."""
        self.has_reported = True
        try:
            os.write(self._descriptor, json.dumps(fields).encode() + b"\n")
        except BrokenPipeError:
            os._exit(1)

    def batch(self, batch: int, results: Results) -> None:
        """Reports a batch that was committed."""
        self(
            event="batch",
            batch=batch,
            counts=dict(results.counts),
            watermarks=dict(results.watermarks),
            holds={operator: asdict(hold) for operator, hold in results.holds.items()},
            quarantined=dict(results.quarantined),
        )


def run_task(
    task: query.QueryTask,
    reports: ReportWriter,
    *,
    lock: int | None,
    stopping: threading.Event,
    scratch: Path,
    wait: Callable[[SparkSession, query.QueryTask, Path], None] = lambda *_: None,
) -> None:
    """Runs the query until it ends, fails or `stopping` is set. `wait` returns when the query may begin."""
    spark = session.open_session(
        task.settings.spark,
        name=task.settings.run.name,
        partitions=task.identity.partitions,
        scratch=scratch,
        lock=lock,
    )
    wait(spark, task, scratch)
    reports(event="started")
    query.run(spark, task, report=reports.batch, stop=stopping.is_set)


def stand_by(spark: SparkSession, task: query.QueryTask, scratch: Path) -> None:
    """Waits for `go`. Meanwhile a rehearsal on an empty log loads the classes and modules of the query, in
    the JVM and in Python's workers.
    """
    if not _has_input():
        folder = scratch / "rehearsal"
        folder.mkdir()
        finished: list[int] = []
        rehearsal_task = replace(
            task,
            settings=task.settings.with_options(log_url=f"embedded:{folder}/log"),
            identity=replace(task.identity, id=uuid.uuid4().hex, base=0),
            path=folder,
            until_caught_up=False,
            until_end=False,
            move=None,
        )
        try:
            query.run(
                spark,
                rehearsal_task,
                report=lambda batch, _: finished.append(batch),
                stop=lambda: bool(finished) or _has_input(),
                poll_seconds=0.05,
            )
        except Exception as error:  # noqa: BLE001 - the query itself is run all the same
            print(f"the rehearsal failed: {error}", file=sys.stderr, flush=True)
    if sys.stdin.readline() != "go\n":
        os._exit(0)


def _has_input() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main(arguments: list[str]) -> int:
    """Loads the task, runs it, and reports how it ended."""
    task_file, report, lock, parent, scratch = (
        Path(arguments[0]),
        *map(int, arguments[1:4]),
        Path(arguments[4]),
    )
    die_with_parent()
    if os.getppid() != parent:
        return 1
    stopping, reports, since = threading.Event(), ReportWriter(report), os.fstat(1).st_size

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the interface of signal handlers
        stopping.set()
        if not reports.has_reported:
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        task: query.QueryTask = pickle.loads(task_file.read_bytes())  # noqa: S301 - written by the supervisor
        run_task(task, reports, lock=lock, stopping=stopping, scratch=scratch, wait=stand_by)
    except Exception as error:  # noqa: BLE001 - the supervisor decides what to do about any error
        cause = explain_failure(error, state=task_file.parent, since=since)
        reports(event="failed", kind=type(cause).__name__, message=str(cause))
        return 1
    reports(event="stopped" if stopping.is_set() else "done")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
