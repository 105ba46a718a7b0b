"""The reference pages that `make docs` generates: settings and commands."""

import sys
from pathlib import Path

from typer.cli import get_docs_for_click
from typer.main import get_command

from millrace import config
from millrace.cli.commands import app


def build_pages() -> dict[str, str]:
    """The text of each page, by file name."""
    import typer

    command = get_command(app)
    return {
        "millrace.toml": config.document(),
        "cli.md": get_docs_for_click(obj=command, ctx=typer.Context(command), name="millrace"),
    }


if __name__ == "__main__":
    for name, text in build_pages().items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
