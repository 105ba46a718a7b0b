"""`millrace run`: jobs over the log, until stopped."""

import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace import durations
from millrace.cli.commands.options import Config, LogUrl, StateDir, format_examples, load_settings

if TYPE_CHECKING:
    from millrace.engine.progress import WatermarkHold
    from millrace.runners import BatchReport

EXAMPLES = format_examples(
    "millrace run vehicle-distribution",
    "millrace run jobs.py:words jobs.py:users --on spark --state /var/lib/millrace",
    "millrace run mypackage.jobs:all_of_them --until-caught-up",
)

Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB",
        help="module:attribute, file.py:attribute, file.py, or a built-in name. By default run.jobs of millrace.toml.",
    ),
]


def run(
    jobs: Jobs = None,
    on: Annotated[
        Literal["local", "spark"] | None, typer.Option(help="The runner. Overrides run.on.")
    ] = None,
    log: LogUrl = None,
    state: StateDir = None,
    name: Annotated[str | None, typer.Option(help="Name of this run. Overrides run.name.")] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop when all that the log holds now is read.")
    ] = False,
    max_events_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Overrides run.max_events_per_batch.")
    ] = None,
    tick: Annotated[str | None, typer.Option(metavar="DURATION", help="Overrides run.tick.")] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master. Overrides spark.master.")
    ] = None,
    retry: Annotated[
        list[str] | None, typer.Option(metavar="JOB", help="Try a job again that its own code had stopped.")
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB", help="Drop the state of a job that has changed: it starts at the present."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Write topics that another state has written so far; its run is stopped."
        ),
    ] = False,
    restore: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Start a new state folder from a savepoint.")
    ] = None,
    config: Config = None,
) -> None:
    """Run jobs together, as one query, until stopped with Ctrl-C.

    A job whose own code raises is stopped alone: the others go on, its offending rows are in dead.JOB, and it stays out until --retry JOB. The
    exit code then says so.

    What they remember is kept in the state folder: started again, they go on where they stopped, and no result is lost or written twice.
    """
    from millrace import runners
    from millrace.graph.find_jobs import load_all_jobs

    loaded_settings = load_settings(
        config,
        run_on=on,
        log_url=log,
        state_dir=state,
        run_name=name,
        run_max_events_per_batch=max_events_per_batch,
        run_tick=tick,
        spark_master=master,
    )
    names = jobs or list(loaded_settings.run.jobs)
    if not names:
        raise typer.BadParameter("name at least one job, or set run.jobs in millrace.toml", param_hint="JOB")
    loaded = load_all_jobs(names, loaded_settings.jobs)
    progress = _RunProgress()
    _log.info("running %s on %s", ", ".join(job.name for job in loaded), loaded_settings.run.on)
    try:
        runners.run(
            *loaded,
            settings=loaded_settings,
            until_caught_up=until_caught_up,
            report=progress.update,
            retry=tuple(retry or ()),
            reset=tuple(reset or ()),
            restore=restore,
            take_over=take_over,
        )
    finally:
        progress.close()
    if until_caught_up:
        _log.info("caught up: all that the log held at the start is read (%s events)", f"{progress.events:,}")


_log = logging.getLogger("millrace.run")


class _RunProgress:
    """A line now and then: how many events were read, how fast, and how far time has come."""

    INTERVAL = 10.0

    def __init__(self) -> None:
        self.events = self.batches = self.reported_events = self.reported_batches = 0
        self.watermark: int | None = None
        self.hold: WatermarkHold | None = None
        self.stopped = self.unanswered = 0
        self.reported_at = time.monotonic()

    def update(self, batch: "BatchReport") -> None:
        """Takes a batch into account."""
        self.events += batch.counts.get("read", 0)
        self.batches += 1
        known = [watermark for watermark in batch.watermarks.values() if watermark is not None]
        self.watermark = min(known) if known else self.watermark
        self.hold = _slowest_hold(batch)
        self.stopped = len(batch.quarantined)
        self.unanswered += sum(
            n for name, n in batch.counts.items() if name.startswith("lookup/") and name.endswith("/failed")
        )
        if time.monotonic() - self.reported_at >= self.INTERVAL:
            self.report()

    def report(self) -> None:
        """The sum so far, and the rate since the last line."""
        elapsed = max(time.monotonic() - self.reported_at, 1e-3)
        rate = (self.events - self.reported_events) / elapsed
        status = ("none yet" if self.watermark is None else _format_time(self.watermark)) + _describe_hold(
            self.hold
        )
        status += f"; {self.stopped} job{'s' * (self.stopped > 1)} under quarantine" if self.stopped else ""
        status += f"; {self.unanswered:,} keys could not be looked up" if self.unanswered else ""
        _log.info(
            "%s events in %s batches, %s events/s, watermark %s",
            f"{self.events:,}",
            f"{self.batches:,}",
            f"{rate:,.0f}",
            status,
        )
        self.reported_at, self.reported_events, self.reported_batches = (
            time.monotonic(),
            self.events,
            self.batches,
        )

    def close(self) -> None:
        """The last line, unless it has just been said."""
        if not self.batches or self.reported_batches != self.batches:
            self.report()


def _slowest_hold(batch: "BatchReport") -> "WatermarkHold | None":
    """What holds back the least watermark: first a partition that never brought anything, then the operator furthest behind."""
    known = batch.watermarks
    return min(
        batch.holds.items(),
        key=lambda item: (item[1].behind is not None, known.get(item[0]) or 0, item[0]),
        default=(None, None),
    )[1]


def _describe_hold(hold: "WatermarkHold | None") -> str:
    if hold is None:
        return ""
    partition = f"{hold.topic}[{hold.partition}]"
    if hold.behind is None:
        return f", held back by {partition}, which has brought nothing yet"
    return f", held back {durations.format_millis(hold.behind)} by {partition}"


def _format_time(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"
