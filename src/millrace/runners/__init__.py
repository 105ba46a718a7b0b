"""Where jobs run: in this process, or on Spark."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from millrace.errors import ComponentMissing, DefinitionError, RunFailed

if TYPE_CHECKING:  # every process that Spark starts imports this package, and most need neither
    from millrace.config import Settings
    from millrace.engine.progress import Hold
    from millrace.runners.state.evolution import Migration
    from millrace.stream import Job

__all__ = ["Batch", "run"]

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class Batch:
    """What is told of a batch once its results are in the log."""

    counts: Mapping[str, int]
    """`read`: how many events it took, and `read/TOPIC` of each topic; `written`: how many rows of results; `late/JOB` and `future/JOB`: how many rows a job refused; `upto/TOPIC`: how many it and all before it took of a topic, with what was no longer kept."""
    watermarks: Mapping[str, int | None]
    """The low watermark of each operator."""
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """What holds the watermark of an operator back, where anything does: topic, partition, and by how much."""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Jobs that were stopped by their own code, and why."""


def _silent(_batch: Batch) -> None:
    pass


def run(
    *jobs: Job,
    on: Literal["local", "spark"] | None = None,
    settings: Settings | None = None,
    until_caught_up: bool = False,
    report: Callable[[Batch], None] = _silent,
    retry: Sequence[str] = (),
    reset: Sequence[str] = (),
    migrate: Mapping[str, Migration] | None = None,
    restore: str | Path | None = None,
    take_over: bool = False,
    **options: object,
) -> None:
    """Runs jobs together, as one query, until stopped or, with `until_caught_up`, until they have read what the log holds now.

    A job whose own code raises is stopped alone, and stays so until it is named in `retry`; at the end `JobQuarantined` says so.
    Jobs may join and leave between runs in one state folder, and the number of slots, on Spark also of partitions, may change. A job whose operators changed is refused, unless it is
    in `reset` (its state is dropped, and it starts at the present, as new jobs do) or in `migrate` (a function of operator, table and rows rewrites its state).
    `restore`: a savepoint from which a new state folder starts. An output topic is written by one state: another one is refused, unless it is to `take_over`.

    `report` is told of each batch. Settings come from `millrace.toml` and the environment unless given; `options` change single ones: `log_url=`, `run_name=`, `spark_master=`.
    """
    from millrace.config import Settings, load
    from millrace.stream import Job
    from millrace.values.calls import need, need_names

    for job in jobs:
        need("run", job, Job, "a job; say Job('name', stream.write(topic))")
    need("run(settings=...)", settings, Settings | None, "settings; say config.load(path)")
    for option, given in (("retry", retry), ("reset", reset)):
        need_names(f"run({option}=...)", given)
    need("run(migrate=...)", migrate, Mapping | None, "a mapping of job names to functions")
    need("run(restore=...)", restore, str | Path | None, "the path of a savepoint")
    names = [job.name for job in jobs]
    if not names:
        raise DefinitionError("run() needs at least one job")
    if twice := {name for name in names if names.count(name) > 1}:
        raise DefinitionError(
            f"two jobs are named {', '.join(sorted(twice))}; names keep the state of jobs apart, so give each its own"
        )
    chosen = (settings or load()).changed(run_on=on, **options)
    from millrace.runners.late_warning import Refusals
    from millrace.runners.stalled_watermark import Standstill
    from millrace.runners.state.evolution import Wishes

    refusals, standstill = Refusals(jobs, chosen), Standstill(time.monotonic)

    def told_all(batch: Batch) -> None:
        refusals.add(batch.counts)
        standstill.update(batch)
        report(batch)

    wishes, saved = Wishes(reset, migrate or {}), None if restore is None else Path(restore)
    try:
        match chosen.run.on:
            case "local":
                from millrace.runners.local import Hooks, run_local

                hooks = Hooks(
                    report=lambda results: told_all(
                        Batch(results.counts, results.watermarks, results.holds, results.quarantined)
                    )
                )
                run_local(
                    jobs,
                    settings=chosen,
                    until_caught_up=until_caught_up,
                    hooks=hooks,
                    retry=retry,
                    wishes=wishes,
                    restore=saved,
                    take_over=take_over,
                )
            case "spark":
                if importlib.util.find_spec("pyspark") is None:
                    raise ComponentMissing(
                        "on='spark' needs PySpark, which is not installed; run: pip install 'millrace[spark]'"
                    )
                from millrace.engine.progress import Hold
                from millrace.runners import spark

                stopped: set[str] = set()

                def told(said: dict[str, Any]) -> None:
                    for job in said["quarantined"].keys() - stopped:
                        stopped.add(job)
                        _log.error(
                            "job %s is under quarantine: %s; the other jobs go on",
                            job,
                            said["quarantined"][job],
                        )
                    holds = {name: Hold(**held) for name, held in said["holds"].items()}
                    told_all(Batch(said["counts"], said["watermarks"], holds, said["quarantined"]))

                spark.run(
                    jobs,
                    settings=chosen,
                    until_caught_up=until_caught_up,
                    report=told,
                    retry=retry,
                    wishes=wishes,
                    restore=saved,
                    take_over=take_over,
                )
    except SystemExit as error:
        raise RunFailed(
            f"code of a job, or of a library that it uses, ended the process (SystemExit: {error.code}), so the run stopped before its end; raise an exception instead, then run it again"
        ) from error
    finally:
        refusals.close()
        standstill.close()
