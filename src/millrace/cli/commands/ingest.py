"""`millrace ingest`: from the outside world to the log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

if TYPE_CHECKING:
    from millrace.config import IngestSettings

EXAMPLES = format_examples(
    "millrace ingest",
    "millrace ingest --recording hsl.jsonl.gz --processor hsl --speed 10 --retime now",
    "millrace ingest --recording hsl.jsonl.gz --speed max",
    "millrace ingest --simulator --scale 4 --seed 7 --volume peak",
    "millrace ingest --file readings.csv --to jobs.py:READINGS --time at",
    "tail -f readings.jsonl | millrace ingest --stdin --to jobs.py:READINGS",
    "millrace ingest --mqtt mqtts://mqtt.hsl.fi:8883 --processor hsl",
)


def ingest(
    recording: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Play this recording (JSON lines, optionally gzipped; or a URL) instead of what millrace.toml names.",
        ),
    ] = None,
    loop: Annotated[
        bool, typer.Option("--loop", help="Begin the recording again at its end, with times that go on.")
    ] = False,
    copies: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=1000,
            help="Every event N times, as if by other vehicles: more volume from what there is.",
        ),
    ] = 1,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Take lines of JSON or CSV from this file, or from several, instead."
        ),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Take lines of JSON from standard input instead.")
    ] = False,
    to: Annotated[
        str | None, typer.Option(metavar="FILE.PY:NAME", help="The declared topic to which lines go.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column with the time of a line; by default when it is read."
        ),
    ] = None,
    unit: Annotated[Literal["ms", "s"], typer.Option(help="What numbers in that column count.")] = "ms",
    format: Annotated[  # noqa: A002 - as users call it
        Literal["jsonl", "csv"] | None,
        typer.Option(help="What lines are; by default what the name of a file says, otherwise jsonl."),
    ] = None,
    mqtt: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Take messages from this broker, such as mqtts://USER@HOST:8883, instead."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER", help="Topics to ask the broker for; by default those the processor understands."
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="By which the broker knows this node again; by default the machine's name."
        ),
    ] = None,
    share: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Divide the messages with all nodes of this group.")
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the password for --mqtt.")
    ] = None,
    processor: Annotated[
        str, typer.Option(metavar="NAME", help="What understands the recording, or the broker's messages.")
    ] = "hsl",
    speed: Annotated[
        str,
        typer.Option(
            metavar="N", help="How many times as fast as it was recorded; max: as fast as possible."
        ),
    ] = "1",
    retime: Annotated[
        Literal["now"] | None, typer.Option(help="now: shift event times so that the replay looks live.")
    ] = None,
    simulator: Annotated[
        bool,
        typer.Option(
            "--simulator",
            help="Make up a city's vehicles instead of what millrace.toml names; takes --speed, too.",
        ),
    ] = False,
    scale: Annotated[
        float,
        typer.Option(metavar="N", help="How many times as many vehicles as a real city, for --simulator."),
    ] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Which of all simulated cities.")] = 1,
    volume: Annotated[
        Literal["curve", "mean", "peak"],
        typer.Option(help="Events a second of the simulated city: following the day, or always the same."),
    ] = "curve",
    duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End the simulated city after this much of its time, such as 1h."),
    ] = None,
    events: Annotated[
        Literal["positions", "all"],
        typer.Option(
            help="What vehicles of the simulated city report; all: arrivals, departures and doors, too."
        ),
    ] = "positions",
    truth: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write what really happened in the simulated city to this folder."),
    ] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Write events to the log: from the connectors of millrace.toml, a recording, a broker or a simulated city. Ctrl-C stops between two batches."""
    from millrace.ingest.pipeline import StopSignal
    from millrace.ingest.service import ingest_all
    from millrace.log import open_log

    loaded_settings = load_settings(config, log_url=log)
    shared = {"processor": processor, "copies": copies}
    lines = {"topic": to, "time": time, "unit": unit, "format": format}
    broker = {
        "url": mqtt,
        "topics": topic,
        "client_id": client_id,
        "share": share,
        "password_file": password_file,
    }
    city = {
        "scale": scale,
        "seed": seed,
        "volume": volume,
        "duration": duration,
        "events": events,
        "truth": truth,
    }
    named: dict[str, dict[str, Any] | None] = {
        "recording": {"path": recording, "speed": speed, "retime": retime, "loop": loop, **shared}
        if recording
        else None,
        "simulator": {"speed": speed, **city} if simulator else None,
        "mqtt": {**broker, **shared} if mqtt else None,
        "files": {"path": file, **lines} if file else None,
        "stdin": {key: value for key, value in lines.items() if value is not None} if stdin else None,
    }
    sources = (
        _source_from_options({name: options for name, options in named.items() if options is not None})
        or loaded_settings.ingest
    )
    stop = StopSignal()
    with stop.on_interrupt():
        ingest_all(sources, open_log(loaded_settings), out=sys.stderr, stop=stop)
    if stop.is_requested:
        raise typer.Exit(130)


def _source_from_options(sources: "dict[str, dict[str, Any]]") -> "dict[str, IngestSettings]":
    """The source that the command line names instead of millrace.toml, if any."""
    from millrace.config import IngestSettings
    from millrace.errors import ConfigError

    for name in {"files", "stdin"} & sources.keys():
        if sources[name].get("topic") is None:
            raise ConfigError(
                "lines need a topic to go to; name the one that your job reads, such as --to jobs.py:READINGS"
            )
    if len(sources) > 1:
        flags = " and ".join("--file" if name == "files" else f"--{name}" for name in sources)
        raise ConfigError(f"{flags} were both given; name one here, or both in sections of millrace.toml")
    return {
        _display_name(name, options): IngestSettings.model_validate({"connector": name, **options})
        for name, options in sources.items()
    }


def _display_name(name: str, options: "dict[str, Any]") -> str:
    """What progress calls it."""
    return Path(options["path"]).name if name == "recording" else name
