"""`millrace verify`: compares what log, state and savepoints hold with their checksums."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, LogUrl, StateDir, examples, settings

EXAMPLES = examples(
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
    from millrace.log.embedded.verify import Walked, verify_log
    from millrace.runners.state.verify import verify_savepoint, verify_state

    chosen, walked = settings(config, log_url=log, state_dir=state), Walked()
    scheme, _, path = chosen.log.url.rpartition("embedded:")
    found = [] if chosen.log.url.startswith("kafka:") else list(verify_log(Path(path or scheme), walked))
    found += verify_state(chosen.state.dir, walked)
    for file in savepoints or ():
        found += verify_savepoint(file, walked)
    if json:
        output.json_lines([asdict(damage) for damage in found])
    for damage in () if json else found:
        typer.echo(f"{damage.file}: {damage.place}: {damage.problem}; lost: {damage.lost}; {damage.remedy}")
    old = (
        f", {walked.unchecked:,} of them of an earlier version, without a checksum"
        if walked.unchecked
        else ""
    )
    typer.echo(f"{walked.files:,} files, {walked.chunks:,} chunks{old}: {len(found):,} damaged", err=True)
    if found:
        raise typer.Exit(1)
