"""`millrace doctor`: checks whether this machine has what millrace needs."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, format_examples, load_settings

if TYPE_CHECKING:
    from millrace.cli.doctor import Finding

EXAMPLES = format_examples("millrace doctor", "millrace doctor --on spark --json")

_MARKS = {"ok": "✓", "absent": "–", "missing": "✗"}


def doctor(
    on: Annotated[Literal["local", "spark"], typer.Option(help="The runner that has to work.")] = "spark",
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Check what this machine has, with a remedy for each problem.

    It looks at Python, Java, Spark, the extras, disk, memory and programs.

    The exit code is 1 if something needed is missing.
    """
    from millrace.cli.doctor import examine

    findings = list(examine(load_settings(config, run_on=on, log_url=log, state_dir=state)))
    if json:
        output.print_json_lines(finding.to_json() for finding in findings)
    else:
        _print_findings(findings)
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)


def _print_findings(findings: "list[Finding]") -> None:
    for finding in findings:
        mark = _MARKS[finding.verdict] if sys.stdout.isatty() else finding.verdict.ljust(7)
        remedy = f"\n    → {finding.remedy}" if finding.remedy else ""
        typer.echo(f"{mark} {finding.name}: {finding.found}{remedy}")
