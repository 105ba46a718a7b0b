"""`millrace bench`: how fast this machine is."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Json, format_examples

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)

ENGINE_COLUMNS = (
    "name",
    "runner",
    "rows_per_batch",
    "events_per_s",
    "cpu_us_per_event",
    "batch_ms",
    "rss_mb",
    "load",
)


@app.command(
    epilog=format_examples(
        "millrace bench engine",
        "millrace bench engine --only vehicle-distribution --json",
        "millrace bench engine --only windows --only aggregates/sum --only local",
    )
)
def engine(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only the measurement, group or runner of this name; may be said several times.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(min=0.001, max=1.0, help="Smaller kinds, to see that all works: 0.05 is a twentieth."),
    ] = 1.0,
    json: Json = False,
) -> None:
    """Events per second, CPU per event, time per batch and memory: the engine, Spark, and plain Structured Streaming beside it."""
    from bench.engine import bench

    results = map(asdict, bench(only or [], scale=scale))
    if json:
        output.print_json_lines(results)
    else:
        output.print_table(
            ENGINE_COLUMNS,
            ([_format_figure(result[column]) for column in ENGINE_COLUMNS] for result in results),
        )


@app.command(
    epilog=format_examples("millrace bench kafka", "millrace bench kafka --rows 200000 --batches 20 --json")
)
def kafka(
    rows: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="Events a batch; may be said several times.")
    ] = None,
    batches: Annotated[
        int, typer.Option(min=3, metavar="N", help="How many batches; the first four tenths warm up.")
    ] = 10,
    runner: Annotated[
        Literal["spark", "spark-4-slots"] | None,
        typer.Option(help="spark-4-slots is Spark with run.slots = 4. By default both."),
    ] = None,
    json: Json = False,
) -> None:
    """Events per second and CPU per event, by phase, Kafka -> vehicle-distribution on Spark -> Kafka, over a backlog and a broker of its own."""
    from bench.kafka import bench

    results = map(
        asdict,
        bench(
            rows or [400_000, 100_000],
            batches=batches,
            runners=[runner] if runner else ["spark", "spark-4-slots"],
        ),
    )
    if json:
        output.print_json_lines(results)
    else:
        output.print_table(
            ENGINE_COLUMNS,
            ([_format_figure(result[column]) for column in ENGINE_COLUMNS] for result in results),
        )


INGEST_COLUMNS = ("source", "messages", "messages_per_s", "cpu_us_per_message", "per_core")
SIZE_COLUMNS = ("codec", "plain", "compressed", "embedded")


@app.command(
    epilog=format_examples("millrace bench ingest", "millrace bench ingest --messages 200000 --json")
)
def ingest(
    messages: Annotated[int, typer.Option(min=1_000, metavar="N", help="How many messages.")] = 50_000,
    json: Json = False,
) -> None:
    """Messages per second and CPU per message from a recording and from a broker (mosquitto, where there is one), and bytes per event in the log."""
    from bench.ingestion import measure_sizes, measure_sources

    for columns, results in (
        (INGEST_COLUMNS, map(asdict, measure_sources(messages))),
        (SIZE_COLUMNS, map(asdict, measure_sizes(messages))),
    ):
        if json:
            output.print_json_lines(results)
        else:
            output.print_table(
                columns, ([_format_figure(result[column]) for column in columns] for result in results)
            )


LIVE_COLUMNS = (
    "viewers",
    "cells_per_s",
    "tiles_per_tick",
    "cpu_ms_per_tick",
    "sent_mb_per_s",
    "to_viewer_ms_p50",
    "to_viewer_ms_p99",
    "rss_mb",
)


@app.command(epilog=format_examples("millrace bench live", "millrace bench live --viewers 200 --cells 10000"))
def live(
    viewers: Annotated[
        list[int] | None,
        typer.Option(
            min=0, metavar="N", help="How many viewers; may be said several times. By default 0, 1 and 50."
        ),
    ] = None,
    cells: Annotated[int, typer.Option(min=2, metavar="N", help="How many cells change a second.")] = 2_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each measurement takes.")] = 10,
    json: Json = False,
) -> None:
    """What the live map costs the server: CPU for each tick, data sent, and how long results take to viewers."""
    from bench.live_map import bench

    results = map(asdict, bench(viewers or [0, 1, 50], cells_per_s=cells, seconds=seconds))
    if json:
        output.print_json_lines(results)
    else:
        output.print_table(
            LIVE_COLUMNS, ([_format_figure(result[column]) for column in LIVE_COLUMNS] for result in results)
        )


BenchLog = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        help="The log; kafka is a broker of its own. By default an embedded log of its own.",
    ),
]
LATENCY_COLUMNS = (
    "job",
    "scale",
    "on",
    "log",
    "n",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "above_floor_p50_ms",
    "above_floor_p99_ms",
    "load",
)


@app.command(
    epilog=format_examples(
        "millrace bench latency",
        "millrace bench latency emergency-stop --on spark --scale 16",
        "millrace bench latency --on spark --log kafka --json",
    )
)
def latency(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="Jobs that run together; by default all that have markers."),
    ] = None,
    on: Annotated[Literal["local", "spark"], typer.Option(help="The runner.")] = "local",
    log: BenchLog = None,
    scale: Annotated[
        float,
        typer.Option(
            min=0.01, help="How many times the volume of a real city, which is 676 events a second."
        ),
    ] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure, once the jobs run.")] = 60,
    json: Json = False,
) -> None:
    """How long results take from event to reader, by markers, and how much of that is more than window and watermark demand.

    On a log that is in use, other events in input.vehicle-positions count as load.
    """
    from bench.latency import bench
    from bench.markers import MARKERS

    results = map(asdict, bench(jobs or list(MARKERS), url=log, on=on, scale=scale, seconds=seconds))
    if json:
        output.print_json_lines(results)
    else:
        output.print_table(
            LATENCY_COLUMNS,
            ([_format_figure(result[column]) for column in LATENCY_COLUMNS] for result in results),
        )


SUSTAINED_COLUMNS = (
    "jobs",
    "scale",
    "on",
    "log",
    "events_per_s",
    "batch_ms",
    "behind_s_p50",
    "behind_s_p99",
    "behind_s_last",
    "mb_second",
    "mb_last",
    "load",
)


@app.command(
    epilog=format_examples(
        "millrace bench sustained --scale 64",
        "millrace bench sustained --log kafka --scale 16 --seconds 1800 --out measured",
        "millrace bench sustained vehicle-distribution emergency-stop --on local --json",
    )
)
def sustained(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="Jobs that run together; by default vehicle-distribution."),
    ] = None,
    on: Annotated[Literal["local", "spark"], typer.Option(help="The runner.")] = "spark",
    log: BenchLog = None,
    scale: Annotated[
        float,
        typer.Option(
            min=0.01, help="How many times the volume of a real city, which is 676 events a second."
        ),
    ] = 16,
    seconds: Annotated[float, typer.Option(min=20, help="How long to measure, once the jobs run.")] = 300,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write all samples as CSV and a picture of memory here."),
    ] = None,
    json: Json = False,
) -> None:
    """Whether jobs keep up with events that keep flowing, how far they are behind, and whether memory stays flat.

    Memory and CPU are those of the jobs' processes and, with a broker of its own, the broker's.
    """
    from rich.console import Console
    from rich.progress import Progress

    from bench.sustained import bench, write_samples
    from millrace.values.local_paths import require_local

    if out is not None:
        require_local(out, "the folder of samples")

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"×{scale:g} for {seconds:,.0f} s", total=1.0)
        measured = bench(
            jobs or ["vehicle-distribution"],
            url=log,
            on=on,
            scale=scale,
            seconds=seconds,
            progress=lambda done_share: progress.update(task, completed=done_share),
        )
    written = write_samples(measured, out) if out is not None else []
    result = {name: value for name, value in asdict(measured).items() if name != "samples"}
    if json:
        output.print_json_lines([result])
        return
    output.print_table(SUSTAINED_COLUMNS, [[_format_figure(result[column]) for column in SUSTAINED_COLUMNS]])
    for name, value in measured.cores.items():
        grown = f", memory {measured.growth[name]:+.1%}" if name in measured.growth else ""
        typer.echo(f"{name}: {value:.2f} cores{grown}")
    for path in written:
        typer.echo(f"wrote {path}")


def _format_figure(value: object) -> object:
    return (
        f"{value:,.2f}"
        if isinstance(value, float) and value < 100
        else f"{value:,.0f}"
        if isinstance(value, int | float)
        else value
    )
