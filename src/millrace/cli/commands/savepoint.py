"""`millrace savepoint`: writes the state of a stopped run to one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import (
    Config,
    Json,
    RunName,
    StateDir,
    format_examples,
    load_settings,
)

if TYPE_CHECKING:
    from millrace.config import Settings
    from millrace.runners.state.savepoint import Savepoint

EXAMPLES = format_examples(
    "millrace savepoint before-the-change.savepoint",
    "millrace savepoint nightly.savepoint --name city --json",
)


def savepoint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")],
    state: StateDir = None,
    name: RunName = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Write the state of a stopped run to a file. `millrace run --restore FILE` starts from it, on either
    runner, also with other slots or jobs.

    Stop the run with Ctrl-C before, so that no batch is half done. For a run on Spark this starts Spark,
    which reads its own checkpoint.
    """
    saved = _save(file, load_settings(config, state_dir=state, run_name=name))
    jobs, summary = list(saved.identity.jobs), {"slots": saved.identity.slots, "bytes": file.stat().st_size}
    if json:
        output.print_json_lines([{"file": str(file), "jobs": jobs, **summary}])
    else:
        output.print_table(("file", "jobs", *summary), [[str(file), ", ".join(jobs), *summary.values()]])


def _save(file: Path, settings: "Settings") -> "Savepoint":
    from millrace.runners.state.folder import lock_folder
    from millrace.runners.state.savepoint import check_target, save

    check_target(file)
    with lock_folder(settings.state.dir / settings.run.name) as folder:
        if not folder.is_spark:
            return save(folder, file)
        from millrace.runners.spark.savepoint import save_stopped_run

        return save_stopped_run(folder, file, settings)
