"""`millrace bench`: how fast this machine is. The benchmarks are in `bench/` of a checkout, which is not part
of the wheel.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Json, format_examples
from millrace.errors import ComponentMissing

if TYPE_CHECKING:
    from bench.sustained import Sustained

app = typer.Typer(
    help="Measure on this machine. Needs a checkout of millrace: the benchmarks are not in the wheel.",
    no_args_is_help=True,
)

CHECKOUT = Path(__file__).parents[4]
"""The root of the checkout, where this package was not installed from a wheel."""

BenchLog = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        help="The log, or kafka for a temporary broker. Default: a temporary embedded log.",
    ),
]
JobsTogether = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Jobs of transit that run together; five: all five. Default: none."),
]
BenchRunner = Annotated[Literal["local", "spark"], typer.Option("--on", help="The runner.")]
Volume = Annotated[
    float,
    typer.Option(min=0.01, metavar="N", help="The volume of events: 1 is a real city, 676 events a second."),
]

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
INGEST_COLUMNS = ("source", "messages", "messages_per_s", "cpu_us_per_message", "per_core")
SIZE_COLUMNS = ("codec", "plain", "compressed", "embedded")
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
NEXMARK_COLUMNS = ("name", "events", "results", "events_per_s", "cpu_us_per_event", "load")
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
        "millrace bench engine",
        "millrace bench engine --only vehicle-distribution --json",
        "millrace bench engine --only windows --only aggregates/sum --only local",
        "millrace bench engine five --only spark",
    )
)
def engine(
    jobs: JobsTogether = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only the measurement, group or runner of this name; may be repeated."
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(
            min=0.001, max=1.0, metavar="N", help="Smaller measurements for a trial: 0.05 is a twentieth."
        ),
    ] = 1.0,
    json: Json = False,
) -> None:
    """Measure the engine, Spark and plain Structured Streaming.

    Events per second, CPU, time per batch, memory. Without jobs: vehicle-distribution, emergency-stop and all
    kinds of windows, triggers and aggregates. Jobs are measured together, over the events of a city of 16
    times the real volume.
    """
    _require_checkout()
    from bench.engine import bench, bench_jobs
    from bench.transit_jobs import expand_names

    together = expand_names(jobs or [])
    figures = bench_jobs(together, only or [], scale=scale) if together else bench(only or [], scale=scale)
    _print_results(ENGINE_COLUMNS, map(asdict, figures), json=json)


@app.command(
    epilog=format_examples(
        "millrace bench kafka",
        "millrace bench kafka --rows 200000 --batches 20 --json",
        "millrace bench kafka five --runner spark",
    )
)
def kafka(
    jobs: JobsTogether = None,
    rows: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="Events per batch; may be repeated.")
    ] = None,
    batches: Annotated[
        int, typer.Option(min=3, metavar="N", help="The number of batches; the first 40 % are warm-up.")
    ] = 10,
    runner: Annotated[
        Literal["spark", "spark-4-slots"] | None,
        typer.Option(help="spark-4-slots is Spark with 4 slots. Default: both."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure jobs on Spark from Kafka to Kafka, over a backlog.

    By phase; without jobs, vehicle-distribution over synthetic positions. Jobs are measured together, over
    the events of a city. A broker is started for the measurement.
    """
    _require_checkout()
    from bench.kafka import bench
    from bench.transit_jobs import expand_names

    runners = [runner] if runner else ["spark", "spark-4-slots"]
    together = expand_names(jobs or [])
    results = bench(rows or [400_000, 100_000], batches=batches, runners=runners, jobs=together)
    _print_results(ENGINE_COLUMNS, map(asdict, results), json=json)


@app.command(
    epilog=format_examples(
        "millrace bench nexmark", "millrace bench nexmark --only q5 --events 200000 --json"
    )
)
def nexmark(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="QUERY", help="Only this query, such as q5; may be repeated."),
    ] = None,
    events: Annotated[
        int, typer.Option(min=1_000, metavar="N", help="The number of events; 46 of 50 are bids.")
    ] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Events per batch.")] = 100_000,
    json: Json = False,
) -> None:
    """Measure the queries of Nexmark on the local runner.

    Each runs over all events, from log to log.
    """
    _require_checkout()
    from bench.nexmark import bench

    results = bench(only or [], events=events, rows_per_batch=rows)
    _print_results(NEXMARK_COLUMNS, map(asdict, results), json=json)


@app.command(
    epilog=format_examples("millrace bench ingest", "millrace bench ingest --messages 200000 --json")
)
def ingest(
    messages: Annotated[int, typer.Option(min=1_000, metavar="N", help="The number of messages.")] = 50_000,
    json: Json = False,
) -> None:
    """Measure ingestion from a recording and from mosquitto.

    It also measures the bytes per event in the log. Mosquitto is left out where it is not installed.
    """
    _require_checkout()
    from bench.ingestion import measure_sizes, measure_sources

    _print_results(INGEST_COLUMNS, map(asdict, measure_sources(messages)), json=json)
    _print_results(SIZE_COLUMNS, map(asdict, measure_sizes(messages)), json=json)


@app.command(epilog=format_examples("millrace bench live", "millrace bench live --viewers 200 --cells 10000"))
def live(
    viewers: Annotated[
        list[int] | None,
        typer.Option(
            min=0, metavar="N", help="The number of viewers; may be repeated. Default: 0, 1 and 50."
        ),
    ] = None,
    cells: Annotated[int, typer.Option(min=2, metavar="N", help="Cells that change per second.")] = 2_000,
    seconds: Annotated[float, typer.Option(min=1, help="The length of each measurement.")] = 10,
    json: Json = False,
) -> None:
    """Measure the server of the live map.

    CPU per tick, data sent, and the latency from result to viewer.
    """
    _require_checkout()
    from bench.live_map import bench

    results = bench(viewers or [0, 1, 50], cells_per_s=cells, seconds=seconds)
    _print_results(LIVE_COLUMNS, map(asdict, results), json=json)


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
        typer.Argument(metavar="JOB", help="Jobs that run together. Default: five, those of transit."),
    ] = None,
    on: BenchRunner = "local",
    log: BenchLog = None,
    scale: Volume = 1,
    seconds: Annotated[float, typer.Option(min=1, help="The length of the measurement.")] = 60,
    json: Json = False,
) -> None:
    """Measure the latency from an event to its result.

    It shows how much of it is more than window and watermark demand. Simulated vehicles (markers) report
    among the others. On a log in use, its other events are part of the load.
    """
    _require_checkout()
    from bench.latency import bench
    from bench.transit_jobs import expand_names

    results = bench(expand_names(jobs or ["five"]), url=log, on=on, scale=scale, seconds=seconds)
    _print_results(LATENCY_COLUMNS, map(asdict, results), json=json)


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
        typer.Argument(
            metavar="JOB", help="Jobs that run together; five: all of transit. Default: vehicle-distribution."
        ),
    ] = None,
    on: BenchRunner = "spark",
    log: BenchLog = None,
    scale: Volume = 16,
    seconds: Annotated[float, typer.Option(min=20, help="The length of the measurement.")] = 300,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write all samples as CSV, and a plot of memory, to this folder."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure whether jobs keep up with a steady stream.

    It shows how far they are behind, and whether memory stays flat. Memory and CPU are those of the jobs
    and, with --log kafka, of the broker.
    """
    _require_checkout()
    from bench.sustained import write_samples
    from bench.transit_jobs import expand_names
    from millrace.values.local_paths import require_local

    if out is not None:
        require_local(out, "the folder of samples")
    measured = _measure_sustained(
        list(expand_names(jobs or ["vehicle-distribution"])), url=log, on=on, scale=scale, seconds=seconds
    )
    written = write_samples(measured, out) if out is not None else []
    result = {name: value for name, value in asdict(measured).items() if name != "samples"}
    _print_results(SUSTAINED_COLUMNS, [result], json=json)
    if json:
        return
    for name, value in measured.cores.items():
        growth = f", memory {measured.growth[name]:+.1%}" if name in measured.growth else ""
        typer.echo(f"{name}: {value:.2f} cores{growth}")
    for path in written:
        typer.echo(f"wrote {path}")


def _require_checkout() -> None:
    """Makes `bench` importable, or says that there is no checkout."""
    if not (CHECKOUT / "bench" / "__init__.py").is_file():
        raise ComponentMissing(
            "millrace bench needs a checkout of millrace, because the installed package does not hold the "
            "benchmarks; "
            "clone the repository and run there: make setup && .venv/bin/millrace bench"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))


def _measure_sustained(jobs: list[str], *, scale: float, seconds: float, **options: Any) -> "Sustained":
    """Measures with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import Progress

    from bench.sustained import bench

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"×{scale:g} for {seconds:,.0f} s", total=1.0)
        return bench(
            jobs,
            scale=scale,
            seconds=seconds,
            progress=lambda done_share: progress.update(task, completed=done_share),
            **options,
        )


def _print_results(columns: tuple[str, ...], results: Iterable[Mapping[str, Any]], *, json: bool) -> None:
    """Some columns of the results as a table, or all of them as JSON."""
    if json:
        output.print_json_lines(results)
    else:
        output.print_table(
            columns, ([_format_figure(result[column]) for column in columns] for result in results)
        )


def _format_figure(value: object) -> object:
    if isinstance(value, float) and value < 100:
        return f"{value:,.2f}"
    return f"{value:,.0f}" if isinstance(value, int | float) else value
