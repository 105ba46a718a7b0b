"""`millrace backfill`: runs a job over all of history, into a new version of its topics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands import event_source, output
from millrace.cli.commands.options import (
    Config,
    JobArgument,
    Json,
    LogUrl,
    Runner,
    StateDir,
    format_examples,
    load_settings,
)

if TYPE_CHECKING:
    from millrace.runners.backfill import BackfillResult

EXAMPLES = format_examples(
    "millrace backfill vehicle-distribution --version v2",
    "millrace backfill jobs.py:words --version v2 --no-switch",
    "millrace backfill jobs.py:words --version 2024 --events words.parquet",
)

Version = Annotated[
    str,
    typer.Option(metavar="NAME", help="The name of the new version; results go to the topic TOPIC.NAME."),
]
HistoryTable = Annotated[
    Path | None,
    typer.Option(
        "--events", metavar="FILE", help="A table to read instead of the log (.parquet, .csv or .jsonl)."
    ),
]


def backfill(
    job: JobArgument,
    version: Version,
    events: HistoryTable = None,
    switch: Annotated[
        bool, typer.Option(help="Point readers to the new version when it has caught up.")
    ] = True,
    on: Runner = None,
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a job's results from all events in the log.

    They go into a new version of its topics, and readers are pointed there. The live run goes on
    meanwhile. Run it again after an interruption, and it continues without loss or duplicates.
    """
    from millrace.runners.backfill import backfill as run_backfill

    loaded_job = event_source.load_one_job(job, config)
    settings = load_settings(config, log_url=log, state_dir=state)
    result = run_backfill(loaded_job, version=version, events=events, on=on, settings=settings, switch=switch)
    _print_result(result, json=json)


def _print_result(result: "BackfillResult", *, json: bool) -> None:
    for name, new in result.topics.items():
        count = result.results[new]
        if json:
            output.print_json_lines(
                [{"topic": name, "version": new, "results": count, "switched": result.switched}]
            )
        else:
            switched = f"; readers of {name} are pointed there" if result.switched else ""
            typer.echo(f"{new}: {count:,} results{switched}")
