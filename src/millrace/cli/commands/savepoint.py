"""`millrace savepoint`: the state of a stopped run in one file."""

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.commands import output
from millrace.cli.commands.options import Config, Json, StateDir, format_examples, load_settings

EXAMPLES = format_examples(
    "millrace savepoint before-the-change.savepoint",
    "millrace savepoint nightly.savepoint --name city --json",
)


def savepoint(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; it must not be there yet.")
    ],
    state: StateDir = None,
    name: Annotated[str | None, typer.Option(help="Name of the run. Overrides run.name.")] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Write the state of a stopped run to a file, from which millrace run --restore FILE starts, on either runner, also with other slots or jobs.

    The run must have been stopped in the ordinary way (Ctrl-C), so that no batch is half done. For a run on Spark this starts Spark, which reads its own checkpoint.
    """
    from millrace.runners.state.folder import lock_folder
    from millrace.runners.state.savepoint import check_target, save

    loaded_settings = load_settings(config, state_dir=state, run_name=name)
    check_target(file)
    with lock_folder(loaded_settings.state.dir / loaded_settings.run.name) as folder:
        if folder.is_spark:
            from millrace.runners.spark.foreground import save_stopped_run

            saved = save_stopped_run(folder, file, loaded_settings)
        else:
            saved = save(folder, file)
    summary = {
        "file": str(file),
        "jobs": list(saved.identity.jobs),
        "slots": saved.identity.slots,
        "bytes": file.stat().st_size,
    }
    if json:
        output.print_json_lines([summary])
    else:
        output.print_table(
            tuple(summary),
            [[str(value) if not isinstance(value, list) else ", ".join(value) for value in summary.values()]],
        )
