"""`millrace record`: makes a recording of what a broker sends."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands.options import format_examples

EXAMPLES = format_examples(
    "millrace record mqtts://mqtt.hsl.fi:8883 hsl.jsonl.gz --topic '/hfp/v2/journey/#' --duration 1h",
    "millrace record mqtt://localhost sensors.jsonl --topic 'sensors/+/reading' --messages 1000",
)

BrokerUrl = Annotated[
    str,
    typer.Argument(metavar="URL", help="The broker: mqtts://USER@HOST:PORT, or mqtt:// without encryption."),
]
TargetFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A new file. It is gzipped if its name ends in .gz.")
]
TopicFilters = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="FILTER", help="A topic to subscribe to; may be repeated. Default: all."),
]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file with the password of the user in URL.")
]


def record(
    broker: BrokerUrl,
    path: TargetFile,
    topic: TopicFilters = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this time, such as 1h.")
    ] = None,
    messages: Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after N messages.")] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of this client at the broker.")
    ] = None,
    password_file: PasswordFile = None,
) -> None:
    """Record what a broker sends, until Ctrl-C.

    `millrace ingest recording FILE` plays it back. Each message becomes a line with its time of arrival,
    topic and payload. It is acknowledged when it is on disk.
    """
    from millrace.ingest.connectors.mqtt import Mqtt
    from millrace.ingest.connectors.mqtt.broker import default_client_id
    from millrace.ingest.pipeline import StopSignal
    from millrace.ingest.progress import IngestProgress
    from millrace.ingest.record import record as write
    from millrace.values.local_paths import require_local

    require_local(path, "the recording")
    name = client_id or f"{default_client_id()}-record"
    connector = Mqtt(broker, topics=topic or ["#"], client_id=name, session="1m", password_file=password_file)
    progress = IngestProgress(path.name, sys.stderr)
    with StopSignal().on_interrupt() as stop:
        counts = write(connector, path, stop=stop, progress=progress, duration=duration, messages=messages)
    progress.finish(counts, stopped=stop.is_requested)
    if stop.is_requested:
        raise typer.Exit(130)
