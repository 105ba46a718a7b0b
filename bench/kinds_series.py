"""Measures kinds one after the other in one process: `python -m bench.kinds_series SERIES`, where SERIES is
JSON. Prints a JSON object per kind.
"""

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
from bench.kinds import BATCHES, Kind, all_kinds
from millrace.config import Settings
from millrace.engine.sink import Results
from millrace.log import open_log
from millrace.stream import Job

LARGE_BATCH = 200_000
"""Readings per batch before the measurement."""
RunJob = Callable[[Job, Settings, Meter | None], None]
"""Runs a job until the meter has all its batches; without a meter, until it has caught up."""


@dataclass(frozen=True)
class Series:
    """The kinds to measure, and the runner."""

    runner: str
    labels: Sequence[str]
    batches: int = BATCHES
    scale: float = 1.0
    """A factor on keys, rows and seconds of warm-up. Less than 1 only shows that everything works."""


def measure(series: Series) -> Iterator[Figures]:
    """Yields the figures of each kind."""
    scaled = [_scale_kind(kind, series.scale) for kind in all_kinds() if kind.label in series.labels]
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder,
        _open_runner(series.runner, Path(folder)) as run,
    ):
        settings = Settings().with_options(log_url=f"embedded:{folder}/log", state_dir=Path(folder, "state"))
        for number, kind in enumerate(scaled):
            run_name = f"kind-{number}"
            yield _measure_kind(kind, settings.with_options(run_name=run_name), series, run)


def _measure_kind(kind: Kind, settings: Settings, series: Series, run: RunJob) -> Figures:
    """Processes the readings of the warm-up, and then measures a run that continues with its state."""
    topic = f"input.{settings.run.name}" if kind.warm_up_seconds else "input.readings"
    job = kind.job(topic)
    if kind.warm_up_seconds:
        _append(settings, topic, keyed_readings.readings(kind.warm_up_seconds, keys=kind.keys))
        run(job, settings.with_options(run_max_events_per_batch=LARGE_BATCH), None)
    _ensure_rows(kind, settings, topic, series.batches)
    meter = Meter(Case(kind.label, series.runner, kind.rows, series.batches, ""))
    run(job, settings.with_options(run_max_events_per_batch=kind.rows), meter)
    return meter.figures()


def _ensure_rows(kind: Kind, settings: Settings, topic: str, batches: int) -> None:
    """Appends the readings to measure, and a few more, since batches are a little larger than the limit.
    Kinds without a warm-up share a topic.
    """
    rows, start = kind.rows * (batches + 2), keyed_readings.START + kind.warm_up_seconds * 1_000
    with closing(open_log(settings.log.url)) as log:
        if (
            not kind.warm_up_seconds
            and topic in log.list_topics()
            and sum(log.end_offsets(topic).values()) >= rows
        ):
            return
    if kind.is_sparse:
        _append(settings, topic, iter([keyed_readings.random_readings(rows, keys=kind.keys, start=start)]))
    else:
        _append(
            settings,
            topic,
            keyed_readings.readings(-(-rows // kind.keys), keys=kind.keys, start=start, seed=3),
        )


def _append(settings: Settings, topic: str, frames: Iterator[pl.DataFrame]) -> None:
    with closing(open_log(settings.log.url)) as log:
        keyed_readings.fill(log, keyed_readings.topic(topic), frames)


def _scale_kind(kind: Kind, scale: float) -> Kind:
    if scale >= 1.0:
        return kind
    before = max(1, int(kind.warm_up_seconds * scale)) if kind.warm_up_seconds else 0
    return replace(
        kind,
        keys=max(10, int(kind.keys * scale)),
        warm_up_seconds=before,
        rows=max(100, int(kind.rows * scale)),
    )


@contextmanager
def _open_runner(name: str, folder: Path) -> Iterator[RunJob]:
    if name == "local":
        yield _run_locally
        return
    from millrace.runners.spark import session

    spark_settings = Settings().spark
    scratch = folder / "spark"
    scratch.mkdir()
    yield _make_spark_runner(
        session.open_session(
            spark_settings,
            name="bench",
            partitions=session.count_cores(spark_settings),
            scratch=scratch,
            output=scratch / "log",
        )
    )


def _run_locally(job: Job, settings: Settings, meter: Meter | None) -> None:
    from millrace.runners.local import Hooks, run_local

    if meter is None:
        run_local([job], settings=settings, take_over=True, until_caught_up=True)
        return
    run_local(
        [job],
        settings=settings,
        take_over=True,
        hooks=Hooks(stop=lambda: meter.is_full, report=lambda results: _count_batch(meter, results)),
    )


def _count_batch(meter: Meter, results: Results) -> None:
    """Counts a batch, unless it had no events."""
    if events := results.counts.get("read", 0):
        meter.add_batch(events)


def _make_spark_runner(spark: Any) -> RunJob:
    from bench.spark_foreground import run

    def run_batch(job: Job, settings: Settings, meter: Meter | None) -> None:
        if meter is None:
            run([job], settings=settings, take_over=True, spark=spark, until_caught_up=True)
            return
        run(
            [job],
            settings=settings,
            take_over=True,
            spark=spark,
            report=lambda _, results: _count_batch(meter, results),
            stop=lambda: meter.is_full,
        )

    return run_batch


if __name__ == "__main__":
    for figures in measure(Series(**json.loads(sys.argv[1]))):
        sys.stdout.write(json.dumps(asdict(figures)) + "\n")
        sys.stdout.flush()
    os._exit(0)
