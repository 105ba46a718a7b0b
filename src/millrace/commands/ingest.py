"""`millrace ingest`: from the outside world to the log."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.commands.options import Config, LogUrl, examples, settings

EXAMPLES = examples(
    "millrace ingest",
    "millrace ingest --recording hsl.jsonl.gz --processor hsl --speed 10 --retime now",
    "millrace ingest --recording hsl.jsonl.gz --speed max",
)


def ingest(
    recording: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play this recording (JSON lines, optionally gzipped) instead of what millrace.toml names."),
    ] = None,
    processor: Annotated[str, typer.Option(metavar="NAME", help="What understands the recording.")] = "hsl",
    speed: Annotated[str, typer.Option(metavar="N", help="How many times as fast as it was recorded; max: as fast as possible.")] = "1",
    retime: Annotated[Literal["now"] | None, typer.Option(help="now: shift event times so that the replay looks live.")] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Write events to the log: from the connectors of millrace.toml, or from a recording. Ctrl-C stops between two batches."""
    from millrace.config import IngestSettings
    from millrace.ingest.pipeline import Stop
    from millrace.ingest.service import ingest_all
    from millrace.log import open_log

    chosen = settings(config, log_url=log)
    sources = chosen.ingest
    if recording is not None:
        options = {"path": recording, "speed": speed, "retime": retime}
        sources = {recording.name: IngestSettings.model_validate({"connector": "recording", "processor": processor, **options})}
    stop = Stop()
    with stop.on_interrupt():
        ingest_all(sources, open_log(chosen.log.url), out=sys.stderr, stop=stop)
    if stop.asked:
        raise typer.Exit(130)
