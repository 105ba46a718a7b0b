"""Where jobs run: in this process, or on Spark."""

import importlib.util
from typing import Literal

from millrace.config import Settings, load
from millrace.errors import ComponentMissing, DefinitionError
from millrace.stream import Job

__all__ = ["run"]


def run(
    *jobs: Job, on: Literal["local", "spark"] | None = None, settings: Settings | None = None, until_caught_up: bool = False, **options: object
) -> None:
    """Runs jobs together, as one query, until stopped or, with `until_caught_up`, until they have read what the log holds now.

    Settings come from `millrace.toml` and the environment unless given; `options` change single ones: `log_url=`, `run_name=`, `spark_master=`.
    """
    names = [job.name for job in jobs]
    if not names:
        raise DefinitionError("run() needs at least one job")
    if twice := {name for name in names if names.count(name) > 1}:
        raise DefinitionError(f"two jobs are named {', '.join(sorted(twice))}; names keep the state of jobs apart, so give each its own")
    chosen = (settings or load()).changed(run_on=on, **options)
    match chosen.run.on:
        case "local":
            from millrace.runners.local import run_local

            run_local(jobs, settings=chosen, until_caught_up=until_caught_up)
        case "spark":
            if importlib.util.find_spec("pyspark") is None:
                raise ComponentMissing("on='spark' needs PySpark, which is not installed; run: pip install 'millrace[spark]'")
            from millrace.runners import spark

            spark.run(jobs, settings=chosen, until_caught_up=until_caught_up)
