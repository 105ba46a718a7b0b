"""Kinds measured one after the other in one process: `python -m bench.kinds_series SERIES`, where SERIES is JSON; prints an object a line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from bench import keyed_readings
from bench.engine_case import Case, Figures, Meter
from bench.kinds import BATCHES, Kind, kinds
from millrace.config import Settings
from millrace.engine.sink import Results
from millrace.log import open_log
from millrace.stream import Job

LARGE = 200_000
"""How many readings a batch has that is not measured."""
Run = Callable[[Job, Settings, Meter | None], None]
"""Runs a job over the log until the meter is full; without one, until it has caught up."""


@dataclass(frozen=True)
class Series:
    """What to measure, on which runner."""

    runner: str
    labels: Sequence[str]
    batches: int = BATCHES
    scale: float = 1.0
    """Less than 1: fewer keys, rows and seconds before, to see that all works; the figures are then of something smaller."""


def measure(series: Series) -> Iterator[Figures]:
    """The figures of each kind as soon as they are known."""
    chosen = [_scaled(kind, series.scale) for kind in kinds() if kind.label in series.labels]
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder,
        _runner(series.runner, Path(folder)) as run,
    ):
        settings = Settings().changed(log_url=f"embedded:{folder}/log", state_dir=Path(folder, "state"))
        for number, kind in enumerate(chosen):
            run_name = f"kind-{number}"
            yield _measured(kind, settings.changed(run_name=run_name), series, run)


def _measured(kind: Kind, settings: Settings, series: Series, run: Run) -> Figures:
    """What must be there before is worked off first; a run that goes on is then measured."""
    topic = f"input.{settings.run.name}" if kind.before else "input.readings"
    job = kind.job(topic)
    if kind.before:
        _append(settings, topic, keyed_readings.readings(kind.before, keys=kind.keys))
        run(job, settings.changed(run_max_events_per_batch=LARGE), None)
    _ensure_rows(kind, settings, topic, series.batches)
    meter = Meter(Case(kind.label, series.runner, kind.rows, series.batches, ""))
    run(job, settings.changed(run_max_events_per_batch=kind.rows), meter)
    return meter.figures()


def _ensure_rows(kind: Kind, settings: Settings, topic: str, batches: int) -> None:
    """The readings that are measured, and a few more, as batches come out a little larger; kinds that need nothing before share theirs."""
    rows, start = kind.rows * (batches + 2), keyed_readings.START + kind.before * 1_000
    with closing(open_log(settings.log.url)) as log:
        if not kind.before and topic in log.list() and sum(log.ends(topic).values()) >= rows:
            return
    if kind.sparse:
        _append(settings, topic, iter([keyed_readings.touches(rows, keys=kind.keys, start=start)]))
    else:
        _append(
            settings,
            topic,
            keyed_readings.readings(-(-rows // kind.keys), keys=kind.keys, start=start, seed=3),
        )


def _append(settings: Settings, topic: str, frames: Iterator[pl.DataFrame]) -> None:
    with closing(open_log(settings.log.url)) as log:
        keyed_readings.fill(log, keyed_readings.topic(topic), frames)


def _scaled(kind: Kind, scale: float) -> Kind:
    if scale >= 1.0:
        return kind
    before = max(1, int(kind.before * scale)) if kind.before else 0
    return replace(
        kind, keys=max(10, int(kind.keys * scale)), before=before, rows=max(100, int(kind.rows * scale))
    )


@contextmanager
def _runner(name: str, folder: Path) -> Iterator[Run]:
    if name == "local":
        yield _local
        return
    from millrace.runners.spark import session

    spark_settings = Settings().spark
    scratch = folder / "spark"
    scratch.mkdir()
    yield _on_spark(
        session.open_session(
            spark_settings,
            name="bench",
            partitions=session.cores(spark_settings),
            scratch=scratch,
            output=scratch / "log",
        )
    )


def _local(job: Job, settings: Settings, meter: Meter | None) -> None:
    from millrace.runners.local import Hooks, run_local

    if meter is None:
        run_local([job], settings=settings, take_over=True, until_caught_up=True)
        return
    run_local(
        [job],
        settings=settings,
        take_over=True,
        hooks=Hooks(stop=lambda: meter.full, report=lambda results: _count(meter, results)),
    )


def _count(meter: Meter, results: Results) -> None:
    """Batches that only follow the clock are not counted."""
    if events := results.counts.get("read", 0):
        meter.batch(events)


def _on_spark(spark: Any) -> Run:
    from millrace.runners.spark.foreground import run

    def go(job: Job, settings: Settings, meter: Meter | None) -> None:
        if meter is None:
            run([job], settings=settings, take_over=True, spark=spark, until_caught_up=True)
            return
        run(
            [job],
            settings=settings,
            take_over=True,
            spark=spark,
            report=lambda _, results: _count(meter, results),
            stop=lambda: meter.full,
        )

    return go


if __name__ == "__main__":
    for figures in measure(Series(**json.loads(sys.argv[1]))):
        sys.stdout.write(json.dumps(asdict(figures)) + "\n")
        sys.stdout.flush()
    os._exit(0)
