"""`millrace replay`: runs a job over bounded events and shows its panes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands import event_source, output
from millrace.cli.commands.options import Config, JobArgument, Json, LogUrl, format_examples

if TYPE_CHECKING:
    import polars as pl

EXAMPLES = format_examples(
    "millrace replay jobs.py:words words.csv",
    "millrace replay vehicle-distribution --recording hsl.jsonl.gz",
    "millrace replay jobs.py:words --events words.csv --output counts.parquet",
    "millrace replay vehicle-distribution --topic input.vehicle-positions --json",
)

EventsFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A recording or a table (.parquet, .csv or .jsonl), recognised by its name and first line.",
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the panes to a .parquet, .csv or .jsonl file."
    ),
]


def replay(
    job: JobArgument,
    file: EventsFile = None,
    recording: event_source.RecordingOption = None,
    processor: event_source.ProcessorOption = "hsl",
    topic: event_source.TopicOption = None,
    events: event_source.TableOption = None,
    to: OutputFile = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of panes to show on a terminal.")] = 50,
    json: Json = False,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Run one job over a file or a topic, and show its panes.

    The file is a recording or a table, and is read to its end. The job runs in this process and stores
    nothing.
    """
    source = event_source.EventSource(recording, processor, topic, events, log, config).with_file(file)
    _replay(job, source, to, json=json, limit=limit)


def _replay(spec: str, source: event_source.EventSource, to: Path | None, *, json: bool, limit: int) -> None:
    from millrace.runners import frame_files
    from millrace.runners.replay import replay_all

    if to is not None:
        frame_files.check_format(to)
    job = event_source.load_one_job(spec, source.config)
    if to is not None and len(job.outputs) > 1:
        raise typer.BadParameter(
            f"{spec} writes several topics, which one file cannot hold; use --json", param_hint="--output"
        )
    events, log = source.resolve(job)
    replayed = replay_all(job, events, log=log)
    for name, panes in replayed.outputs.items():
        _print_panes(name, panes, to, json=json, limit=limit)
    counts = {"late rows": len(replayed.late), "records that could not be decoded": len(replayed.dead)}
    if dropped := [f"{count:,} {label}" for label, count in counts.items() if count]:
        typer.echo(f"set aside: {', '.join(dropped)}", err=True)


def _print_panes(topic: str, panes: "pl.DataFrame", to: Path | None, *, json: bool, limit: int) -> None:
    if to is not None:
        from millrace.runners import frame_files

        frame_files.write(panes, to)
        typer.echo(f"{len(panes)} panes in {to}")
    elif json:
        output.print_json_lines({"topic": topic, **row} for row in output.iter_rows(panes))
    elif panes.is_empty():
        typer.echo(f"{topic}: no panes, because no event fell into a window of this job")
    else:
        output.print_frame(panes, limit=limit, title=topic)
