"""`millrace verify`: compares what log, state and savepoints hold with their checksums."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, format_examples, load_settings

EXAMPLES = format_examples(
    "millrace verify",
    "millrace verify before-upgrade.savepoint --log embedded:data/log --state data/state --json",
)


def verify(
    savepoints: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Savepoints to look at as well.")
    ] = None,
    log: LogUrl = None,
    state: StateDir = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Walk the embedded log, the state folders and savepoints, and say what is damaged. Nothing is changed; runs may go on meanwhile.

    Exit code 1: something is damaged. Brokers of Kafka check their own files, and Spark its own checkpoint.
    """
    from millrace.log.embedded.verify import VerificationCounts, verify_log
    from millrace.runners.state.verify import verify_savepoint, verify_state

    loaded_settings, totals = load_settings(config, log_url=log, state_dir=state), VerificationCounts()
    scheme, _, path = loaded_settings.log.url.rpartition("embedded:")
    damages = (
        [] if loaded_settings.log.url.startswith("kafka:") else list(verify_log(Path(path or scheme), totals))
    )
    damages += verify_state(loaded_settings.state.dir, totals)
    for file in savepoints or ():
        damages += verify_savepoint(file, totals)
    if json:
        output.print_json_lines([asdict(damage) for damage in damages])
    for damage in () if json else damages:
        typer.echo(f"{damage.file}: {damage.place}: {damage.problem}; lost: {damage.lost}; {damage.remedy}")
    unchecked = (
        f", {totals.unchecked:,} of them of an earlier version, without a checksum"
        if totals.unchecked
        else ""
    )
    typer.echo(
        f"{totals.files:,} files, {totals.chunks:,} chunks{unchecked}: {len(damages):,} damaged", err=True
    )
    if damages:
        raise typer.Exit(1)
