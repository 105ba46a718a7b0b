"""`millrace run`: jobs over the log, until stopped."""

from typing import Annotated, Literal

import typer

from millrace.commands.options import Config, LogUrl, StateDir, examples, settings

EXAMPLES = examples(
    "millrace run vehicle-distribution",
    "millrace run jobs.py:words jobs.py:users --on spark --state /var/lib/millrace",
    "millrace run mypackage.jobs:all_of_them --until-caught-up",
)

Jobs = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="module:attribute, file.py:attribute, file.py, or a built-in name. By default run.jobs of millrace.toml.")]


def run(
    jobs: Jobs = None,
    on: Annotated[Literal["local", "spark"] | None, typer.Option(help="The runner. Overrides run.on.")] = None,
    log: LogUrl = None,
    state: StateDir = None,
    name: Annotated[str | None, typer.Option(help="Name of this run. Overrides run.name.")] = None,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="Stop when all that the log holds now is read.")] = False,
    max_events_per_batch: Annotated[int | None, typer.Option(min=1, help="Overrides run.max_events_per_batch.")] = None,
    tick: Annotated[str | None, typer.Option(metavar="DURATION", help="Overrides run.tick.")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master. Overrides spark.master.")] = None,
    config: Config = None,
) -> None:
    """Run jobs together, as one query, until stopped with Ctrl-C.

    What they remember is kept in the state folder: started again, they go on where they stopped, and no result is lost or written twice.
    """
    from millrace import runners
    from millrace.jobs import load_all

    chosen = settings(
        config, run_on=on, log_url=log, state_dir=state, run_name=name, run_max_events_per_batch=max_events_per_batch, run_tick=tick, spark_master=master
    )
    named = jobs or list(chosen.run.jobs)
    if not named:
        raise typer.BadParameter("name at least one job, or set run.jobs in millrace.toml", param_hint="JOB")
    runners.run(*load_all(named), settings=chosen, until_caught_up=until_caught_up)
