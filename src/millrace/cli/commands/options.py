"""Arguments and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from millrace.config import Settings

_JOB_HELP = "module:attribute, file.py:attribute, file.py, or a built-in name."
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help=f"The job: {_JOB_HELP}")]
JobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help=f"{_JOB_HELP} Default: run.jobs of millrace.toml."),
]
Runner = Annotated[
    Literal["local", "spark"] | None, typer.Option("--on", help="The runner. Overrides run.on.")
]
RunName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name of the run. Overrides run.name.")
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The settings file. Default: millrace.toml of this folder, if there is one.",
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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def format_examples(*lines: str) -> str:
    """Examples for the end of a help text, a paragraph each."""
    return "\n\n".join(("Examples:", *lines))


def load_settings(path: Path | None, **changes: object) -> "Settings":
    """Settings from file and environment, changed by options of the command line (`log_url=...`; None changes
    nothing).
    """
    from millrace import config

    return config.load(path).with_options(**changes)
