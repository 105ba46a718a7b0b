"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from millrace import config
from millrace.config import Settings

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Settings; by default millrace.toml of this folder, if it is there.",
    ),
]
LogUrl = Annotated[
    str | None,
    typer.Option(
        "--log", metavar="URL", help="The log: embedded:FOLDER or kafka://HOST:PORT. Overrides log.url."
    ),
]
StateDir = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="The state folder. Overrides state.dir.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def format_examples(*lines: str) -> str:
    """Examples as the end of a help text, a paragraph each."""
    return "\n\n".join(("Examples:", *lines))


def load_settings(path: Path | None, **changes: object) -> Settings:
    """Settings from file and environment, changed by what the command line said."""
    return config.load(path).with_options(**changes)
