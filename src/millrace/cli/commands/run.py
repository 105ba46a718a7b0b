"""`millrace run`: runs jobs over the log, until stopped."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.commands.options import (
    Config,
    JobsArgument,
    LogUrl,
    RunName,
    Runner,
    StateDir,
    format_examples,
    load_settings,
)

if TYPE_CHECKING:
    from millrace.config import Settings

EXAMPLES = format_examples(
    "millrace run vehicle-distribution",
    "millrace run jobs.py:words jobs.py:users --on spark --state /var/lib/millrace",
    "millrace run mypackage.jobs:all_of_them --until-caught-up",
    "millrace run jobs.py:words --until-end",
)

UntilCaughtUp = Annotated[
    bool,
    typer.Option(
        "--until-caught-up",
        help="Stop when all events that the log holds now are read, and those that the jobs add meanwhile.",
    ),
]
UntilEnd = Annotated[
    bool,
    typer.Option(
        "--until-end",
        help="Read all events that the log holds now, end the stream, complete all that waits, and stop. "
        "Nothing can follow in this state folder.",
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Overrides run.max_events_per_batch.")
]
Tick = Annotated[str | None, typer.Option(metavar="DURATION", help="Overrides run.tick.")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Spark's master. Overrides spark.master.")]
Retry = Annotated[
    list[str] | None,
    typer.Option(metavar="JOB", help="Run a job again that was stopped by its own code; may be repeated."),
]
Reset = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB",
        help="Drop the state of a job whose definition changed; it starts with new events. May be repeated.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Write topics that belong to another state folder; its run is stopped."),
]
Restore = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Start a new state folder from a savepoint.")
]

_log = logging.getLogger("millrace.run")


def run(
    jobs: JobsArgument = None,
    on: Runner = None,
    log: LogUrl = None,
    state: StateDir = None,
    name: RunName = None,
    until_caught_up: UntilCaughtUp = False,
    until_end: UntilEnd = False,
    max_events_per_batch: BatchSize = None,
    tick: Tick = None,
    master: Master = None,
    retry: Retry = None,
    reset: Reset = None,
    take_over: TakeOver = False,
    restore: Restore = None,
    config: Config = None,
) -> None:
    """Run jobs together, as one query, until stopped with Ctrl-C.

    State is kept in the state folder. Started again, the jobs go on where they stopped: no result is lost or
    written twice.

    A job whose own code raises is stopped alone. Its offending rows are in dead.JOB, and it stays stopped
    until --retry JOB; the exit code is then 1.
    """
    overrides = {
        "run_on": on,
        "log_url": log,
        "state_dir": state,
        "run_name": name,
        "run_max_events_per_batch": max_events_per_batch,
        "run_tick": tick,
        "spark_master": master,
    }
    changes = {"retry": tuple(retry or ()), "reset": tuple(reset or ())}
    modes = {"until_caught_up": until_caught_up, "until_end": until_end}
    options = {**modes, "restore": restore, "take_over": take_over, **changes}
    _run(jobs, load_settings(config, **overrides), options)


def _run(specs: list[str] | None, settings: "Settings", options: dict[str, Any]) -> None:
    """Runs the jobs with progress lines. `options` are those of `millrace.run`."""
    from millrace import runners
    from millrace.cli.run_progress import RunProgress
    from millrace.graph.find_jobs import load_all_jobs

    names = specs or list(settings.run.jobs)
    if not names:
        raise typer.BadParameter("name at least one job, or set run.jobs in millrace.toml", param_hint="JOB")
    jobs = load_all_jobs(names, settings.jobs)
    progress = RunProgress()
    _log.info("running %s on %s", ", ".join(job.name for job in jobs), settings.run.on)
    try:
        runners.run(*jobs, settings=settings, report=progress.update, **options)
    finally:
        progress.close()
    if options["until_end"]:
        _log.info(
            "the stream has ended: all windows, timers and patterns are complete (%s events)",
            f"{progress.events:,}",
        )
    elif options["until_caught_up"]:
        _log.info("caught up: all that the log held at the start is read (%s events)", f"{progress.events:,}")
