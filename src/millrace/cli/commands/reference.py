"""The reference pages that `make docs` generates: settings and commands."""

import json
import sys
from pathlib import Path

from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click
from typer.main import get_command

from millrace import config
from millrace.cli.commands import app

_JOB_PARAMETERS = """
# Parameters of a job that a function makes, under the name of the job: built-in, or "jobs.py:made".
# [jobs.vehicle-distribution]
# resolution = 9       # of H3 cells
# window = "30s"
# every = "5s"
# watermark = "1s"     # or "percentile(0.99)"
# lateness = "1m"
# early = "1s"         # how often there are early results; left out: never"""


def build_pages() -> dict[str, str]:
    """The text of each page, by file name."""
    import typer

    command = get_command(app)
    return {
        "millrace.toml": document_settings(),
        "cli.md": get_docs_for_click(obj=command, ctx=typer.Context(command), name="millrace"),
    }


def document_settings() -> str:
    """A `millrace.toml` with every key, its meaning and its default, commented out."""
    parts = ["# Every key of millrace.toml with its default. Variables MILLRACE_<SECTION>_<KEY> override it."]
    for section, model in config.SECTIONS.items():
        meaning = (model.__doc__ or "").partition(": ")[2]
        parts.append(f"\n# {meaning[:1].upper()}{meaning[1:]}\n[{section}]")
        parts += [_document_key(section, key, field) for key, field in model.model_fields.items()]
    parts.append(
        "\n# One section for each source of events; other keys are options of the connector.\n# [ingest.NAME]"
    )
    parts += [
        f"# {key} = ...  # {field.description}" for key, field in config.IngestSettings.model_fields.items()
    ]
    parts.append(_JOB_PARAMETERS)
    return "\n".join(parts) + "\n"


def _document_key(section: str, key: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, dict):
        return f"# {field.description}\n# [{section}.{key}]"
    default_text = (
        "..." if default is None else json.dumps(str(default) if isinstance(default, Path) else default)
    )
    return f"# {field.description}\n# {key} = {default_text}"


if __name__ == "__main__":
    for name, text in build_pages().items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
