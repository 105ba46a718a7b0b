"""`millrace ingest`: writes events from outside to the log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

if TYPE_CHECKING:
    from millrace.config import IngestSettings
    from millrace.ingest.pipeline import IngestCounts

app = typer.Typer(
    invoke_without_command=True,
    epilog=format_examples(
        "millrace ingest",
        "millrace ingest mqtt mqtts://mqtt.hsl.fi:8883 --processor hsl",
        "millrace ingest recording hsl.jsonl.gz --speed max",
        "millrace ingest files readings.csv --to jobs.py:READINGS --time at",
        "millrace ingest simulator --scale 4",
    ),
)

Processor = Annotated[
    str, typer.Option(metavar="NAME", help="The processor that turns messages into events: hsl or gtfs-rt.")
]
Copies = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=1000, help="Write each event N times, as if other vehicles had sent it, too."
    ),
]
Speed = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="1: in real time; 10: ten times as fast; max: as fast as possible.",
        show_default=True,
    ),
]
TargetTopic = Annotated[
    str,
    typer.Option(metavar="FILE.PY:NAME", help="The Topic to write to, where your program declares it."),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column with the event time. Default: the time of reading."),
]
TimeUnit = Annotated[Literal["ms", "s"], typer.Option(help="The unit of numbers in the time column.")]
LineFormat = Annotated[
    Literal["jsonl", "csv"] | None,
    typer.Option(help="The format of the lines. Default: by the name of the file, otherwise jsonl."),
]
BrokerUrl = Annotated[
    str,
    typer.Argument(metavar="URL", help="The broker: mqtts://USER@HOST:PORT, or mqtt:// without encryption."),
]
TopicFilters = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="FILTER",
        help="A topic to subscribe to; may be repeated. Default: the topics of the processor.",
    ),
]
ClientId = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The name of this node. Default: millrace- and the host name."),
]
ShareGroup = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Share the messages with the other nodes of this group."),
]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file with the password of the user in URL.")
]


@app.callback()
def ingest(context: typer.Context, log: LogUrl = None, config: Config = None) -> None:
    """Write events to the log, from a broker, files or a simulation.

    Without a command, all sources run that millrace.toml names in sections [ingest.NAME]. Ctrl-C stops
    between two batches.
    """
    if context.invoked_subcommand is None:
        _run(load_settings(config).ingest, log=log, config=config)
    # `millrace ingest --log URL mqtt …` means the same as `millrace ingest mqtt … --log URL`.
    context.default_map = {str(context.invoked_subcommand): {"log": log, "config": config}}


@app.command(
    epilog=format_examples(
        "millrace ingest mqtt mqtts://mqtt.hsl.fi:8883 --processor hsl",
        "millrace ingest mqtt mqtts://me@mqtt.example.org:8883 --password-file /run/secrets/mqtt",
        "millrace ingest mqtt mqtt://localhost --topic '/hfp/v2/journey/#' --client-id node-1 --share city",
    )
)
def mqtt(
    url: BrokerUrl,
    topic: TopicFilters = None,
    client_id: ClientId = None,
    share: ShareGroup = None,
    password_file: PasswordFile = None,
    processor: Processor = "hsl",
    copies: Copies = 1,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Subscribe to an MQTT broker.

    A message is acknowledged when the log has it, so a node that dies gets it again. Ctrl-C stops.
    """
    options: dict[str, Any] = {
        "topics": topic,
        "client_id": client_id,
        "share": share,
        "password_file": password_file,
    }
    _run_one("mqtt", log, config, url=url, processor=processor, copies=copies, **options)


@app.command(
    epilog=format_examples(
        "millrace ingest recording hsl.jsonl.gz --speed max",
        "millrace ingest recording hsl.jsonl.gz --processor hsl --speed 10 --retime now",
        "millrace ingest recording https://example.org/hsl.jsonl.gz --loop",
    )
)
def recording(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The recording: JSON lines, optionally gzipped; also a URL."),
    ],
    speed: Speed = "1",
    retime: Annotated[
        Literal["now"] | None, typer.Option(help="now: shift all times so that the replay looks live.")
    ] = None,
    loop: Annotated[
        bool, typer.Option("--loop", help="Start again at the end, with times that continue.")
    ] = False,
    processor: Processor = "hsl",
    copies: Copies = 1,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Play back a recording, as `millrace record` makes them."""
    options: dict[str, Any] = {
        "speed": speed,
        "retime": retime,
        "loop": loop,
        "processor": processor,
        "copies": copies,
    }
    _run_one("recording", log, config, name=Path(file).name, path=file, **options)


@app.command(
    epilog=format_examples(
        "millrace ingest files readings.csv --to jobs.py:READINGS --time at",
        "millrace ingest files 'readings/*.jsonl.gz' --to jobs.py:READINGS --time at --unit s",
    )
)
def files(
    path: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files of JSON lines or CSV, patterns, or URLs; also gzipped."),
    ],
    to: TargetTopic,
    time: TimeColumn = None,
    unit: TimeUnit = "ms",
    format: LineFormat = None,  # noqa: A002 - as users call it
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Read files with lines of JSON or CSV, once, to their end.

    Each line is one event of the topic. A line that does not fit becomes a dead letter.
    """
    _run_one("files", log, config, path=path, topic=to, time=time, unit=unit, format=format)


@app.command(
    epilog=format_examples(
        "tail -f readings.jsonl | millrace ingest stdin --to jobs.py:READINGS",
        "millrace ingest stdin --to jobs.py:READINGS --format csv --time at < readings.csv",
    )
)
def stdin(
    to: TargetTopic,
    time: TimeColumn = None,
    unit: TimeUnit = "ms",
    format: LineFormat = None,  # noqa: A002 - as users call it
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Read lines of JSON or CSV from standard input, until it ends."""
    _run_one("stdin", log, config, topic=to, time=time, unit=unit, format=format)


@app.command(
    epilog=format_examples(
        "millrace ingest simulator",
        "millrace ingest simulator --scale 4 --seed 7 --volume peak",
        "millrace ingest simulator --speed max --duration 1h --events all --truth city",
    )
)
def simulator(
    scale: Annotated[
        float,
        typer.Option(metavar="N", help="The number of vehicles: 1 is a real city, 4 four times as many."),
    ] = 1,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The city to simulate: equal seeds make equal cities.")
    ] = 1,
    volume: Annotated[
        Literal["curve", "mean", "peak"],
        typer.Option(help="Events per second: by the time of day, or always the mean or the peak."),
    ] = "curve",
    events: Annotated[
        Literal["positions", "all"],
        typer.Option(help="What vehicles report; all: also arrivals, departures and doors."),
    ] = "positions",
    speed: Speed = "1",
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this much simulated time, such as 1h.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write what really happened to this folder.")
    ] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Simulate the vehicles of a city."""
    city: dict[str, Any] = {"scale": scale, "seed": seed, "volume": volume, "events": events, "truth": truth}
    _run_one("simulator", log, config, speed=speed, duration=duration, **city)


def _run_one(
    connector: str, log: str | None, config: Path | None, *, name: str | None = None, **options: Any
) -> None:
    """Runs one connector. `name` is what progress lines call it; options that are None are left to the
    connector.
    """
    from millrace.config import IngestSettings

    given = {key: value for key, value in options.items() if value is not None}
    source = IngestSettings.model_validate({"connector": connector, **given})
    _run({name or connector: source}, log=log, config=config)


def _run(sources: "dict[str, IngestSettings]", *, log: str | None, config: Path | None) -> None:
    from millrace.ingest.pipeline import StopSignal
    from millrace.ingest.service import ingest_all
    from millrace.log import open_log

    stop, opened = StopSignal(), open_log(load_settings(config, log_url=log))
    with stop.on_interrupt():
        counts = ingest_all(sources, opened, out=sys.stderr, stop=stop)
    if stop.is_requested:
        raise typer.Exit(130)
    for name, count in counts.items():
        _refuse_if_nothing_fits(name, count)


def _refuse_if_nothing_fits(name: str, counts: "IngestCounts") -> None:
    """Ends with an error where a source brought nothing but rejects: then an option is wrong, and no line."""
    from millrace.errors import InputError

    if counts.received and counts.rejected.total() == counts.received:
        raise InputError(
            f"{name}: all {counts.received:,} messages were rejected, so nothing was written; the first: "
            f"{counts.first_reject}; mend the options or the source, and ingest it again"
        )
