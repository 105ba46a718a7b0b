"""`millrace backfill`: a job over all of history, into a new version of its topics."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.cli.commands import given, output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, format_examples, load_settings

EXAMPLES = format_examples(
    "millrace backfill vehicle-distribution --version v2",
    "millrace backfill jobs.py:words --version v2 --no-switch",
    "millrace backfill jobs.py:words --version 2024 --events words.parquet",
)


def backfill(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="module:attribute, file.py:attribute, file.py, or a built-in name."
        ),
    ],
    version: Annotated[
        str, typer.Option(metavar="NAME", help="What the new version is called; results go to TOPIC.NAME.")
    ],
    events: Annotated[
        Path | None,
        typer.Option(
            "--events",
            metavar="FILE",
            help="A table of events instead of what the log holds (.parquet, .csv or .jsonl).",
        ),
    ] = None,
    switch: Annotated[
        bool, typer.Option(help="Point readers to the new version when it has caught up.")
    ] = True,
    on: Annotated[
        Literal["local", "spark"] | None, typer.Option(help="The runner. Overrides run.on.")
    ] = None,
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Recompute a job's results from all that the log holds, into a new version of its topics, and point readers there.

    The live run goes on meanwhile. Given again, or interrupted, the command continues where it stopped; nothing is lost or written twice.
    """
    from millrace.runners.backfill import backfill as fill

    loaded_job = given.load_one_job(job, config)
    loaded_settings = load_settings(config, log_url=log, state_dir=state)
    result = fill(loaded_job, version=version, events=events, on=on, settings=loaded_settings, switch=switch)
    for name, new in result.topics.items():
        if json:
            output.print_json_lines(
                [{"topic": name, "version": new, "results": result.results[new], "switched": result.switched}]
            )
        else:
            typer.echo(
                f"{new}: {result.results[new]:,} results"
                + (f"; readers of {name} are pointed there" if result.switched else "")
            )
