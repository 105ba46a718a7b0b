"""`millrace bench`: how fast this machine is."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from millrace.commands import output
from millrace.commands.options import Json, LogUrl, examples

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)

COLUMNS = ("name", "runner", "rows_per_batch", "events_per_s", "cpu_us_per_event", "batch_ms", "rss_mb", "load")


@app.command(
    epilog=examples(
        "millrace bench engine",
        "millrace bench engine --only vehicle-distribution --json",
        "millrace bench engine --only windows --only aggregates/sum --only local",
    )
)
def engine(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only the measurement, group or runner of this name; may be said several times."),
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, max=1.0, help="Smaller kinds, to see that all works: 0.05 is a twentieth.")] = 1.0,
    json: Json = False,
) -> None:
    """Events per second, CPU per event, time per batch and memory: the engine, Spark, and plain Structured Streaming beside it."""
    from millrace.measure.engine import bench

    results = map(asdict, bench(only or [], scale=scale))
    if json:
        output.json_lines(results)
    else:
        output.table(COLUMNS, ([_figure(result[column]) for column in COLUMNS] for result in results))


@app.command(epilog=examples("millrace bench kafka", "millrace bench kafka --rows 200000 --batches 20 --json"))
def kafka(
    rows: Annotated[list[int] | None, typer.Option(min=1, metavar="N", help="Events a batch; may be said several times.")] = None,
    batches: Annotated[int, typer.Option(min=3, metavar="N", help="How many batches; the first four tenths warm up.")] = 10,
    json: Json = False,
) -> None:
    """Events per second and CPU per event, by phase, Kafka -> vehicle-distribution on Spark -> Kafka, over a backlog and a broker of its own."""
    from millrace.measure.backlog import bench

    results = map(asdict, bench(rows or [400_000, 100_000], batches=batches))
    if json:
        output.json_lines(results)
    else:
        output.table(COLUMNS, ([_figure(result[column]) for column in COLUMNS] for result in results))


INGESTED = ("source", "messages", "messages_per_s", "cpu_us_per_message", "per_core")
SIZES = ("codec", "plain", "compressed", "embedded")


@app.command(epilog=examples("millrace bench ingest", "millrace bench ingest --messages 200000 --json"))
def ingest(
    messages: Annotated[int, typer.Option(min=1_000, metavar="N", help="How many messages.")] = 50_000,
    json: Json = False,
) -> None:
    """Messages per second and CPU per message from a recording and from a broker (mosquitto, where there is one), and bytes per event in the log."""
    from millrace.measure.ingestion import sizes, sources

    for columns, results in ((INGESTED, map(asdict, sources(messages))), (SIZES, map(asdict, sizes(messages)))):
        if json:
            output.json_lines(results)
        else:
            output.table(columns, ([_figure(result[column]) for column in columns] for result in results))


LIVE = ("viewers", "cells_per_s", "tiles_per_tick", "cpu_ms_per_tick", "sent_mb_per_s", "to_viewer_ms_p50", "to_viewer_ms_p99", "rss_mb")


@app.command(epilog=examples("millrace bench live", "millrace bench live --viewers 200 --cells 10000"))
def live(
    viewers: Annotated[
        list[int] | None, typer.Option(min=0, metavar="N", help="How many viewers; may be said several times. By default 0, 1 and 50.")
    ] = None,
    cells: Annotated[int, typer.Option(min=2, metavar="N", help="How many cells change a second.")] = 2_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each measurement takes.")] = 10,
    json: Json = False,
) -> None:
    """What the live map costs the server: CPU for each tick, data sent, and how long results take to viewers."""
    from millrace.measure.live import bench

    results = map(asdict, bench(viewers or [0, 1, 50], cells_per_s=cells, seconds=seconds))
    if json:
        output.json_lines(results)
    else:
        output.table(LIVE, ([_figure(result[column]) for column in LIVE] for result in results))


LATENCY = ("job", "scale", "on", "log", "n", "p50_ms", "p90_ms", "p99_ms", "above_floor_p50_ms", "above_floor_p99_ms", "load")


@app.command(
    epilog=examples(
        "millrace bench latency",
        "millrace bench latency emergency-stop --on spark --scale 16",
        "millrace bench latency --log kafka://localhost:9092 --json",
    )
)
def latency(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="JOB", help="Jobs that run together; by default all that have markers.")
    ] = None,
    on: Annotated[Literal["local", "spark"], typer.Option(help="The runner.")] = "local",
    log: LogUrl = None,
    scale: Annotated[float, typer.Option(min=0.01, help="How many times the volume of a real city, which is 676 events a second.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure, once the jobs run.")] = 60,
    json: Json = False,
) -> None:
    """How long results take from event to reader, by markers, and how much of that is more than window and watermark demand.

    Without --log it measures on an embedded log of its own. On a log that is in use, other events in input.vehicle-positions count as load.
    """
    from millrace.measure.latency import bench
    from millrace.transit.markers import MARKERS

    results = map(asdict, bench(jobs or list(MARKERS), url=log, on=on, scale=scale, seconds=seconds))
    if json:
        output.json_lines(results)
    else:
        output.table(LATENCY, ([_figure(result[column]) for column in LATENCY] for result in results))


def _figure(value: object) -> object:
    return f"{value:,.2f}" if isinstance(value, float) and value < 100 else f"{value:,.0f}" if isinstance(value, int | float) else value
