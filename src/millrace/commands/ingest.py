"""`millrace ingest`: from the outside world to the log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.commands.options import Config, LogUrl, examples, settings

if TYPE_CHECKING:
    from millrace.config import IngestSettings

EXAMPLES = examples(
    "millrace ingest",
    "millrace ingest --recording hsl.jsonl.gz --processor hsl --speed 10 --retime now",
    "millrace ingest --recording hsl.jsonl.gz --speed max",
    "millrace ingest --simulator --scale 4 --seed 7 --volume peak",
    "millrace ingest --mqtt mqtts://mqtt.hsl.fi:8883 --processor hsl",
)


def ingest(
    recording: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play this recording (JSON lines, optionally gzipped) instead of what millrace.toml names."),
    ] = None,
    mqtt: Annotated[
        str | None, typer.Option(metavar="URL", help="Take messages from this broker, such as mqtts://USER@HOST:8883, instead.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Topics to ask the broker for; by default those the processor understands.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="By which the broker knows this node again; by default the machine's name.")
    ] = None,
    share: Annotated[str | None, typer.Option(metavar="GROUP", help="Divide the messages with all nodes of this group.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Holds the password for --mqtt.")] = None,
    processor: Annotated[str, typer.Option(metavar="NAME", help="What understands the recording, or the broker's messages.")] = "hsl",
    speed: Annotated[str, typer.Option(metavar="N", help="How many times as fast as it was recorded; max: as fast as possible.")] = "1",
    retime: Annotated[Literal["now"] | None, typer.Option(help="now: shift event times so that the replay looks live.")] = None,
    simulator: Annotated[
        bool, typer.Option("--simulator", help="Make up a city's vehicles instead of what millrace.toml names; takes --speed, too.")
    ] = False,
    scale: Annotated[float, typer.Option(metavar="N", help="How many times as many vehicles as a real city, for --simulator.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Which of all simulated cities.")] = 1,
    volume: Annotated[
        Literal["curve", "mean", "peak"], typer.Option(help="Events a second of the simulated city: following the day, or always the same.")
    ] = "curve",
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="End the simulated city after this much of its time, such as 1h.")
    ] = None,
    events: Annotated[
        Literal["positions", "all"],
        typer.Option(help="What vehicles of the simulated city report; all: arrivals, departures and doors, too."),
    ] = "positions",
    truth: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write what really happened in the simulated city to this folder.")
    ] = None,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Write events to the log: from the connectors of millrace.toml, a recording, a broker or a simulated city. Ctrl-C stops between two batches."""
    from millrace.ingest.pipeline import Stop
    from millrace.ingest.service import ingest_all
    from millrace.log import open_log

    chosen = settings(config, log_url=log)
    recorded = {"path": recording, "processor": processor, "speed": speed, "retime": retime}
    city = {"speed": speed, "scale": scale, "seed": seed, "volume": volume, "duration": duration, "events": events, "truth": truth}
    broker = {"url": mqtt, "processor": processor, "topics": topic, "client_id": client_id, "share": share, "password_file": password_file}
    named = {
        "recording": recorded if recording else None,
        "simulator": city if simulator else None,
        "mqtt": broker if mqtt else None,
    }
    sources = _named_here({name: options for name, options in named.items() if options}) or chosen.ingest
    stop = Stop()
    with stop.on_interrupt():
        ingest_all(sources, open_log(chosen.log.url), out=sys.stderr, stop=stop)
    if stop.asked:
        raise typer.Exit(130)


def _named_here(named: "dict[str, dict[str, Any]]") -> "dict[str, IngestSettings]":
    """The source that the command line names instead of millrace.toml, if any."""
    from millrace.config import IngestSettings
    from millrace.errors import ConfigError

    if len(named) > 1:
        given = " and ".join(f"--{name}" for name in named)
        raise ConfigError(f"{given} were both given; name one here, or both in sections of millrace.toml")
    return {_shown(name, options): IngestSettings.model_validate({"connector": name, **options}) for name, options in named.items()}


def _shown(name: str, options: "dict[str, Any]") -> str:
    """What progress calls it."""
    return str(options["path"].name) if name == "recording" else name
