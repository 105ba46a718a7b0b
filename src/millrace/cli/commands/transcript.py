"""`millrace transcript`: runs YAML documents of events and expected panes."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.cli.commands.options import format_examples

EXAMPLES = format_examples(
    "millrace transcript tests/transcripts/*.yaml", "millrace transcript windows.yaml --on spark"
)


def transcript(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Transcripts (YAML).")],
    on: Annotated[
        Literal["model", "engine", "spark"],
        typer.Option(help="Run them on the model (the specification), the engine, or the engine on Spark."),
    ] = "engine",
) -> None:
    """Run transcripts, and show where the panes differ.

    A transcript lists events and the panes expected of them. The exit code is 1 if one of them fails.
    """
    from millrace.testing.transcripts import run_files

    if run_files(files, on=on, say=typer.echo):
        raise typer.Exit(1)
