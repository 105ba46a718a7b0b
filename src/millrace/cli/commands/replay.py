"""`millrace replay`: a job over events that are all there already."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands import given, output
from millrace.cli.commands.options import Config, Json, LogUrl, format_examples

if TYPE_CHECKING:
    import polars as pl

EXAMPLES = format_examples(
    "millrace replay jobs.py:words words.csv",
    "millrace replay vehicle-distribution --recording hsl.jsonl.gz",
    "millrace replay jobs.py:words --events words.csv --output counts.parquet",
    "millrace replay vehicle-distribution --topic input.vehicle-positions --json",
)


def replay(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="module:attribute, file.py:attribute, file.py, or a built-in name."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A recording, or a table (.parquet, .csv or .jsonl), told apart by name and first line.",
        ),
    ] = None,
    recording: given.RecordingOption = None,
    processor: given.ProcessorOption = "hsl",
    topic: given.TopicOption = None,
    events: given.TableOption = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the panes to a .parquet, .csv or .jsonl file."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many panes to show on a terminal.")] = 50,
    json: Json = False,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Run one job in this process over a recording, a topic or a file, to its end, and show its panes. Nothing is stored."""
    from millrace.runners import frame_files
    from millrace.runners.replay import replay_all

    if to is not None:
        frame_files.check_format(to)
    loaded_job = given.load_one_job(job, config)
    if to is not None and len(loaded_job.outputs) > 1:
        raise typer.BadParameter(
            f"{job} writes several topics, which one file cannot hold; use --json", param_hint="--output"
        )
    source_events, source_log = (
        given.EventSource(recording, processor, topic, events, log, config)
        .with_file(file)
        .resolve(loaded_job)
    )
    replayed = replay_all(loaded_job, source_events, log=source_log)
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
