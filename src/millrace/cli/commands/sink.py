"""`millrace sink`: results into databases."""

from typing import Annotated

import typer

from millrace.cli.commands.options import Config, LogUrl, format_examples, load_settings

app = typer.Typer(no_args_is_help=True)

Database = Annotated[
    str,
    typer.Argument(metavar="URL", help="The database: postgresql://USER@HOST/DATABASE, or host=… dbname=…."),
]


@app.callback()
def sink() -> None:
    """Write results to a database."""


@app.command(
    epilog=format_examples(
        "millrace sink postgres postgresql://me@db/shop --topic jobs.py:TOTALS",
        "millrace sink postgres 'host=db dbname=shop' --topic jobs.py:TOTALS --table totals --no-wait",
    )
)
def postgres(
    url: Database,
    topic: Annotated[
        str,
        typer.Option(metavar="FILE.PY:NAME", help="The Topic that your job writes; also module:attribute."),
    ],
    table: Annotated[
        str, typer.Option(metavar="NAME", help="The table. Default: the name of the topic, with _ for dots.")
    ] = "",
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="What tells results apart; may be repeated. Default: the topic's key."
        ),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Stop at the end instead of waiting for more.")
    ] = False,
    log: LogUrl = None,
    config: Config = None,
) -> None:
    """Keep the newest results in a table of PostgreSQL.

    It follows the topic until stopped with Ctrl-C. Started again, it goes on where it stopped. The
    password is taken from PGPASSWORD or ~/.pgpass.
    """
    from millrace.log import open_log
    from millrace.sinks.postgres import PostgresTable, follow

    target = PostgresTable(url, topic, table, key or ())
    opened = open_log(load_settings(config, log_url=log), create=False)
    records = follow(opened, target, wait=not no_wait)
    typer.echo(f"{target.topic.name}: {records:,} records are in table {target.table}")
