"""`millrace replay`: a job over events that are all there already."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.commands import output
from millrace.commands.options import Config, Json, LogUrl, examples, settings

if TYPE_CHECKING:
    import polars as pl

    from millrace.stream import Job

EXAMPLES = examples(
    "millrace replay vehicle-distribution --recording hsl.jsonl.gz",
    "millrace replay jobs.py:words --events words.csv --output counts.parquet",
    "millrace replay vehicle-distribution --topic input.vehicle-positions --json",
)


def replay(
    job: Annotated[str, typer.Argument(metavar="JOB", help="module:attribute, file.py:attribute, file.py, or a built-in name.")],
    recording: Annotated[Path | None, typer.Option(metavar="FILE", help="A recording (JSON lines, optionally gzipped).")] = None,
    processor: Annotated[str, typer.Option(metavar="NAME", help="What understands the recording.")] = "hsl",
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="A topic of the log, as far as it is filled now.")] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table (.parquet, .csv or .jsonl): the fields of the topic's type and event_time.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the panes to a .parquet, .csv or .jsonl file.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many panes to show on a terminal.")] = 50,
    json: Json = False,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Run one job in this process over a recording, a topic or a file, to its end, and show its panes. Nothing is stored."""
    from millrace import tables
    from millrace.jobs import load
    from millrace.runners.replay import replay_all

    if sum(source is not None for source in (recording, topic, events)) != 1:
        raise typer.BadParameter("say exactly one of --recording, --topic and --events")
    if to is not None:
        tables.check(to)
    jobs = load(job)
    if len(jobs) != 1:
        raise typer.BadParameter(f"{job} is {len(jobs)} jobs; name one of them", param_hint="JOB")
    if to is not None and len(jobs[0].outputs) > 1:
        raise typer.BadParameter(f"{job} writes several topics, which one file cannot hold; use --json", param_hint="--output")
    if recording is not None:
        from millrace.ingest.bounded import recorded

        replayed = replay_all(jobs[0], recorded(recording, processor=processor))
    elif topic is not None:
        _check_reads(jobs[0], topic)
        replayed = replay_all(jobs[0], topic, log=settings(config, log_url=log).log.url)
    else:
        assert events is not None, "one of three is given"
        replayed = replay_all(jobs[0], events)
    for name, panes in replayed.outputs.items():
        _show(name, panes, to, json=json, limit=limit)
    if len(replayed.late) or len(replayed.dead):
        typer.echo(f"set aside: {len(replayed.late)} late rows, {len(replayed.dead)} records that could not be decoded", err=True)


def _check_reads(job: "Job", topic: str) -> None:
    from millrace.engine.plan import Plan

    known = [read.name for read in Plan.of([job], slots=1).topics]
    if topic not in known:
        raise typer.BadParameter(f"{job.name} does not read {topic!r}; it reads {', '.join(known)}", param_hint="--topic")


def _show(topic: str, panes: "pl.DataFrame", to: Path | None, *, json: bool, limit: int) -> None:
    if to is not None:
        from millrace import tables

        tables.write(panes, to)
        typer.echo(f"{len(panes)} panes in {to}")
    elif json:
        output.json_lines({"topic": topic, **row} for row in output.rows(panes))
    elif panes.is_empty():
        typer.echo(f"{topic}: no panes, because no event fell into a window of this job")
    else:
        output.frame(panes, limit=limit, title=topic)
