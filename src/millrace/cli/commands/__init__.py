"""One module per command: it parses arguments, calls the library once, and prints the result."""

import inspect
import sys
from typing import Annotated

import typer

from millrace.cli.commands import (
    backfill,
    bench,
    demo,
    doctor,
    explain,
    ingest,
    kafka,
    record,
    replay,
    run,
    savepoint,
    serve,
    sink,
    topics,
    transcript,
    verify,
)

app = typer.Typer(
    name="millrace",
    help="Event-stream analytics: jobs over a durable log, in one process or on Apache Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(ingest.app, name="ingest")
app.add_typer(topics.app, name="topics")
app.add_typer(sink.app, name="sink")
app.add_typer(bench.app, name="bench")
app.add_typer(kafka.app, name="kafka")
for command in (
    demo,
    run,
    savepoint,
    record,
    serve,
    explain,
    replay,
    backfill,
    transcript,
    doctor,
    verify,
):
    app.command(epilog=command.EXAMPLES)(getattr(command, command.__name__.rsplit(".", 1)[-1]))


def _show_summaries_whole(group: typer.Typer) -> None:
    """Lists of commands show the first sentence of each; by default it is cut off."""
    for command in group.registered_commands:
        command.short_help = _first_sentence(inspect.getdoc(command.callback))
    for inner in group.registered_groups:
        if (commands := inner.typer_instance) is not None:
            callback = commands.registered_callback
            own_help = inspect.getdoc(callback.callback) if callback is not None else commands.info.help
            inner.short_help = _first_sentence(own_help)
            _show_summaries_whole(commands)


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".") + "."


_show_summaries_whole(app)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from millrace import __version__

        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; also works after any command.")
    ] = False,
) -> None:
    """Options of every command. `millrace.cli.main` reads `--debug`, wherever it stands."""
