"""`millrace transcript`: facts about streams, written down and run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace.cli.commands.options import format_examples

EXAMPLES = format_examples(
    "millrace transcript tests/transcripts/*.yaml", "millrace transcript windows.yaml --on spark"
)


def transcript(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Transcripts (YAML).")],
    on: Annotated[Literal["model", "engine", "spark"], typer.Option(help="What runs them.")] = "engine",
) -> None:
    """Run transcripts, events in and expected panes out, and show where they differ. Fails if one does."""
    from millrace.testing.transcripts import run_files

    if run_files(files, on=on, say=typer.echo):
        raise typer.Exit(1)
