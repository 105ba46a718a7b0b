"""`millrace doctor`: whether this machine has what millrace needs."""

import sys
from typing import Annotated, Literal

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, format_examples, load_settings

EXAMPLES = format_examples("millrace doctor", "millrace doctor --on spark --json")

_MARKS = {"ok": "✓", "absent": "–", "missing": "✗"}


def doctor(
    on: Annotated[Literal["local", "spark"], typer.Option(help="The runner that must work.")] = "spark",
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Look for Java, Spark, disk, memory and programs; each line says what to do about it. Fails where something needed is missing."""
    from millrace.cli.doctor import examine

    findings = list(examine(load_settings(config, run_on=on, log_url=log, state_dir=state)))
    if json:
        output.print_json_lines(finding.to_json() for finding in findings)
    else:
        for finding in findings:
            mark = _MARKS[finding.verdict] if sys.stdout.isatty() else finding.verdict.ljust(7)
            typer.echo(
                f"{mark} {finding.name}: {finding.found}"
                + (f"\n    → {finding.remedy}" if finding.remedy else "")
            )
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)
