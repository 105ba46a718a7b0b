"""`millrace verify`: compares log, state and savepoints with their checksums."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, format_examples, load_settings

if TYPE_CHECKING:
    from millrace.log.embedded.verify import Damage, VerificationCounts

EXAMPLES = format_examples(
    "millrace verify",
    "millrace verify before-upgrade.savepoint --log embedded:data/log --state data/state --json",
)


def verify(
    savepoints: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Savepoints to check as well.")
    ] = None,
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Check log, state folders and savepoints for damage.

    Nothing is changed, and runs may go on meanwhile. The exit code is 1 if something is damaged. Kafka
    brokers check their own files, and Spark its own checkpoint.
    """
    from millrace.log import open_log
    from millrace.log.embedded.verify import VerificationCounts, verify_log
    from millrace.runners.state.verify import verify_savepoint, verify_state

    settings, totals = load_settings(config, log_url=log, state_dir=state), VerificationCounts()
    damages: list[Damage] = []
    if log is not None:
        open_log(settings, create=False).close()  # a log that is named must be there
    if not settings.log.url.startswith("kafka:"):
        damages += verify_log(Path(settings.log.url.removeprefix("embedded:")), totals)
    damages += verify_state(settings.state.dir, totals)
    for file in savepoints or ():
        damages += verify_savepoint(file, totals)
    _print_damages(damages, totals, json=json)
    if damages:
        raise typer.Exit(1)


def _print_damages(damages: "list[Damage]", totals: "VerificationCounts", *, json: bool) -> None:
    if json:
        output.print_json_lines([asdict(damage) for damage in damages])
    else:
        for damage in damages:
            typer.echo(
                f"{damage.file}: {damage.place}: {damage.problem}; lost: {damage.lost}; {damage.remedy}"
            )
    unchecked = ""
    if totals.unchecked:
        unchecked = f", {totals.unchecked:,} of them of an earlier version, without a checksum"
    counts = f"{totals.files:,} files, {totals.chunks:,} chunks{unchecked}"
    typer.echo(f"{counts}: {len(damages):,} damaged", err=True)
