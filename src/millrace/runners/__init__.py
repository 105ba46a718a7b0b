"""Runs jobs: in this process, or on Spark."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from millrace.errors import ComponentMissing, DefinitionError, RunFailed

if TYPE_CHECKING:  # every process that Spark starts imports this package, and most need neither
    from millrace.config import Settings
    from millrace.engine.progress import WatermarkHold
    from millrace.runners.state.evolution import Migration
    from millrace.stream import Job

__all__ = ["BatchReport", "run"]

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class BatchReport:
    """A batch whose results are in the log."""

    counts: Mapping[str, int]
    """`read`: how many events it took, and `read/TOPIC` of each topic; `written`: how many rows of results;
    `late/JOB` and `future/JOB`: how many rows a job refused; `upto/TOPIC`: how many it and all before it took
    of a topic, with what was no longer kept.
    """
    watermarks: Mapping[str, int | None]
    """The low watermark of each operator."""
    holds: Mapping[str, WatermarkHold] = field(default_factory=dict)
    """The partition that holds back the watermark of an operator, and by how much."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Jobs that were stopped by their own code, and why."""


def _ignore_report(_batch: BatchReport) -> None:
    pass


def run(
    *jobs: Job,
    on: Literal["local", "spark"] | None = None,
    settings: Settings | None = None,
    until_caught_up: bool = False,
    until_end: bool = False,
    report: Callable[[BatchReport], None] = _ignore_report,
    retry: Sequence[str] = (),
    reset: Sequence[str] = (),
    migrate: Mapping[str, Migration] | None = None,
    restore: str | Path | None = None,
    take_over: bool = False,
    **options: object,
) -> None:
    """Runs jobs together, as one query, until stopped.

    With `until_caught_up`, until they have read what the log holds now, and what they themselves write
    meanwhile. With `until_end`, those streams then end: all windows, timers and patterns that wait are
    completed, and the run ends. Nothing can follow in that state folder.

    A job whose own code raises is stopped alone, and stays so until it is named in `retry`; at the end
    `JobQuarantined` says so. Jobs may join and leave between runs in one state folder, and the number of
    slots, on Spark also of partitions, may change. A job whose operators changed is refused, unless it is in
    `reset` (its state is dropped, and it starts at the present, as new jobs do) or in `migrate` (a function
    of operator, table and rows rewrites its state). `restore`: a savepoint from which a new state folder
    starts. An output topic is written by one state: another one is refused, unless it is to `take_over`.

    `report` is called after each batch. Settings come from `millrace.toml` and the environment unless given;
    `options` change single ones: `log_url=`, `run_name=`, `spark_master=`.
    """
    from millrace.config import load

    _check_arguments(jobs, settings=settings, retry=retry, reset=reset, migrate=migrate, restore=restore)
    if "run_on" in options:
        raise DefinitionError("run(run_on=...) is called on; write run(job, on='spark')")
    chosen = (settings or load()).with_options(run_on=on, **options)
    from millrace.runners.state.evolution import StateChanges

    run_jobs = _run_locally if chosen.run.on == "local" else _run_on_spark
    with _watch_batches(jobs, chosen, report) as handle_report, _explain_exit():
        run_jobs(
            jobs,
            handle_report,
            settings=chosen,
            until_caught_up=until_caught_up,
            until_end=until_end,
            retry=retry,
            state_changes=StateChanges(reset, migrate or {}),
            restore=None if restore is None else Path(restore),
            take_over=take_over,
        )


@contextmanager
def _watch_batches(
    jobs: Sequence[Job], settings: Settings, report: Callable[[BatchReport], None]
) -> Iterator[Callable[[BatchReport], None]]:
    """A report that also warns of many late rows and of watermarks that stand still."""
    from millrace.engine.followed_topics import find_followed_topics
    from millrace.runners.late_warning import LateRowMonitor
    from millrace.runners.stalled_watermark import StalledWatermarkMonitor

    late_rows = LateRowMonitor(jobs, settings)
    stalled_watermark = StalledWatermarkMonitor(time.monotonic, followed_topics=find_followed_topics(jobs))

    def handle_report(batch: BatchReport) -> None:
        late_rows.add(batch.counts)
        stalled_watermark.update(batch)
        report(batch)

    try:
        yield handle_report
    finally:
        late_rows.close()
        stalled_watermark.close()


@contextmanager
def _explain_exit() -> Iterator[None]:
    """Turns an exit by code of a job into `RunFailed`: the process must not end as if it had succeeded."""
    try:
        yield
    except SystemExit as error:
        raise RunFailed(
            f"code of a job, or of a library that it uses, ended the process (SystemExit: {error.code}), so "
            "the run stopped before its end; raise an exception instead, then run it again"
        ) from error


def _check_arguments(
    jobs: Sequence[Job],
    *,
    settings: object,
    retry: Sequence[str],
    reset: Sequence[str],
    migrate: object,
    restore: object,
) -> None:
    """Refuses wrong arguments of `run` in one line each."""
    from millrace.config import Settings
    from millrace.stream import Job
    from millrace.values.calls import require_names, require_type

    for job in jobs:
        require_type("run", job, Job, "a job; say Job('name', stream.write(topic))")
    require_type("run(settings=...)", settings, Settings | None, "settings; say config.load(path)")
    for option, value in (("retry", retry), ("reset", reset)):
        require_names(f"run({option}=...)", value)
    require_type("run(migrate=...)", migrate, Mapping | None, "a mapping of job names to functions")
    require_type("run(restore=...)", restore, str | Path | None, "the path of a savepoint")
    names = [job.name for job in jobs]
    if not names:
        raise DefinitionError("run() needs at least one job")
    if twice := {name for name in names if names.count(name) > 1}:
        raise DefinitionError(
            f"two jobs are named {', '.join(sorted(twice))}; names keep the state of jobs "
            "apart, so give each its own"
        )


def _run_locally(jobs: Sequence[Job], report: Callable[[BatchReport], None], **options: Any) -> None:
    from millrace.runners.local import Hooks, run_local

    hooks = Hooks(
        report=lambda results: report(
            BatchReport(results.counts, results.watermarks, results.holds, results.quarantined)
        )
    )
    run_local(jobs, hooks=hooks, **options)


def _run_on_spark(jobs: Sequence[Job], report: Callable[[BatchReport], None], **options: Any) -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise ComponentMissing(
            "on='spark' needs PySpark, which is not installed; run: pip install 'millrace-streams[spark]'"
        )
    from millrace.engine.progress import WatermarkHold
    from millrace.runners import spark

    stopped: set[str] = set()

    def handle_message(message: dict[str, Any]) -> None:
        for job in message["quarantined"].keys() - stopped:
            stopped.add(job)
            reason = message["quarantined"][job]
            _log.error("job %s is under quarantine: %s; the other jobs go on", job, reason)
        holds = {name: WatermarkHold(**hold) for name, hold in message["holds"].items()}
        report(BatchReport(message["counts"], message["watermarks"], holds, message["quarantined"]))

    spark.run(jobs, report=handle_message, **options)
