"""`millrace record`: a recording from a broker."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands.options import format_examples

EXAMPLES = format_examples(
    "millrace record mqtts://mqtt.hsl.fi:8883 hsl.jsonl.gz --topic '/hfp/v2/journey/#' --duration 1h",
    "millrace record mqtt://localhost sensors.jsonl --topic 'sensors/+/reading' --messages 1000",
)


def record(
    broker: Annotated[
        str, typer.Argument(metavar="URL", help="Such as mqtts://USER@HOST:8883; mqtt:// is not encrypted.")
    ],
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to; must be new. Gzipped if its name ends in .gz.")
    ],
    topic: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Topics to ask for; by default all.")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="End after this long, such as 1h.")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after as many messages.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="By which the broker knows this recorder.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the password of the user in URL.")
    ] = None,
) -> None:
    """Record what a broker sends, until stopped with Ctrl-C. `millrace ingest recording FILE` plays it back.

    Each message is a line with the time at which it came, its topic and its payload, byte for byte. The broker is told that a message was taken when it
    is on disk.
    """
    from millrace.ingest.connectors.mqtt import Mqtt
    from millrace.ingest.connectors.mqtt.broker import default_client_id
    from millrace.ingest.pipeline import StopSignal
    from millrace.ingest.progress import IngestProgress
    from millrace.ingest.record import record as write
    from millrace.values.local_paths import require_local

    require_local(path, "the recording")
    connector = Mqtt(
        broker,
        topics=topic or ["#"],
        client_id=client_id or f"{default_client_id()}-record",
        session="1m",
        password_file=password_file,
    )
    progress = IngestProgress(path.name, sys.stderr)
    with StopSignal().on_interrupt() as stop:
        counts = write(connector, path, stop=stop, progress=progress, duration=duration, messages=messages)
    progress.finish(counts, stopped=stop.is_requested)
    if stop.is_requested:
        raise typer.Exit(130)
