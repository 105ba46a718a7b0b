"""Measures one case in this process: `python -m bench.engine_case CASE`,
where CASE is JSON. Prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from bench import machine, phases, transit_jobs
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.runners.spark.source import SourceSpec
    from millrace.stream import Job

WARM_UP = 0.4
"""The part of the batches that is not measured; caches fill in them."""
JVM_WARM_UP = 80
"""Batches before those, so that the JVM has compiled the query.
They are small; plain SQL processes all its batches once.
"""


@dataclass(frozen=True)
class Case:
    """What to measure. The events are in `folder`."""

    name: str
    runner: str
    rows_per_batch: int
    batches: int
    folder: str
    log: str = ""
    """The URL of the log, if it is not the embedded one in the folder."""
    brokers: tuple[int, ...] = ()
    """Processes of brokers, whose CPU time is added."""
    jobs: tuple[str, ...] = ()
    """The jobs that run together, if it is not the one of this name."""


@dataclass(frozen=True)
class Figures:
    """The figures of a case: microseconds of CPU per event over all processes, the median of milliseconds per
    batch, memory at the end.
    """

    name: str
    runner: str
    rows_per_batch: int
    events_per_s: float
    cpu_us_per_event: float
    batch_ms: float
    rss_mb: float
    phases: dict[str, float] = field(default_factory=dict)
    """Microseconds of CPU per event by phase; `jvm`, `workers` and `driver` are whole processes."""
    load: float = 0.0
    """The load average of the last minute, this measurement included.
    If it exceeds the number of cores, times are too long.
    """


CpuSpent = tuple[dict[str, float], dict[str, float]]
"""CPU seconds by kind of process, and by phase."""


class Meter:
    """Records the end of each batch, and the CPU time from the end of the warm-up on."""

    def __init__(self, case: Case, phases_folder: Path | None = None) -> None:
        self._case, self._phases_folder = case, phases_folder
        self._done: list[tuple[float, int]] = []
        self._spent_at_start: CpuSpent | None = None
        self._spent_at_end: CpuSpent | None = None

    @property
    def is_full(self) -> bool:
        """Whether all batches are done."""
        return len(self._done) >= self._case.batches

    def add_batch(self, events: int) -> None:
        """Records a batch."""
        if self.is_full:
            return
        self._done.append((time.monotonic(), events))
        if len(self._done) == max(1, int(self._case.batches * WARM_UP)):
            self._spent_at_start = self._measure_cpu()
        if self.is_full:
            self._spent_at_end = self._measure_cpu()

    def figures(self) -> Figures:
        """The figures of the batches after the warm-up."""
        assert self._spent_at_start is not None, "not all batches were seen"
        assert self._spent_at_end is not None, "not all batches were seen"
        first = max(1, int(self._case.batches * WARM_UP)) - 1
        times = [moment for moment, _ in self._done[first:]]
        events = sum(count for _, count in self._done[first + 1 :])
        gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times))
        by_process, by_phase = (
            {k: (after[k] - before.get(k, 0.0)) / events * 1e6 for k in after}
            for before, after in zip(self._spent_at_start, self._spent_at_end, strict=True)
        )
        return Figures(
            self._case.name,
            self._case.runner,
            self._case.rows_per_batch,
            round(events / (times[-1] - times[0])),
            round(sum(by_process.values()), 3),
            round(gaps[len(gaps) // 2] * 1000, 1),
            round(machine.memory_mb(os.getpid())),
            {name: round(value, 3) for name, value in (by_process | by_phase).items() if value},
            round(os.getloadavg()[0], 1),
        )

    def _measure_cpu(self) -> CpuSpent:
        spent = machine.cpu_seconds(os.getpid())
        if self._case.brokers:
            spent["brokers"] = sum(sum(machine.cpu_seconds(pid).values()) for pid in self._case.brokers)
        return spent, dict(phases.collect(self._phases_folder)) if self._phases_folder else {}


def measure(case: Case) -> Figures:
    """Runs the case."""
    with _open_scratch() as (state, phases_folder):
        meter = Meter(case, phases_folder)
        settings = Settings().with_options(
            log_url=case.log or f"embedded:{case.folder}/log",
            state_dir=state,
            run_name="bench",
            run_max_events_per_batch=case.rows_per_batch,
        )
        match case.runner:
            case "local":
                _run_local(case, settings, meter)
            case "spark":
                _run_spark(case, settings, meter)
            case "spark-4-slots":
                _run_spark(case, settings.with_options(run_slots=4), meter)
            case _:
                _run_plain_spark(case, settings, meter)
        return meter.figures()


@contextmanager
def _open_scratch() -> Iterator[tuple[Path, Path]]:
    """A folder for state, and one for the times of phases."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        phases_folder = Path(folder, "phases")
        phases_folder.mkdir()
        os.environ[phases.VARIABLE] = str(phases_folder)
        phases.install()
        yield Path(folder, "state"), phases_folder


def _make_jobs(case: Case) -> list[Job]:
    return transit_jobs.make_jobs(case.jobs or (case.name,))


def _run_local(case: Case, settings: Settings, meter: Meter) -> None:
    from millrace.runners.local import Hooks, run_local

    run_local(
        _make_jobs(case),
        settings=settings,
        take_over=True,
        hooks=Hooks(
            stop=lambda: meter.is_full, report=lambda results: meter.add_batch(results.counts["read"])
        ),
    )


def _run_spark(case: Case, settings: Settings, meter: Meter) -> None:
    from bench.spark_foreground import run
    from millrace.runners.spark import session

    chosen = settings.with_options(spark_conf={"spark.python.daemon.module": "bench.worker_daemon"})
    scratch = Path(tempfile.mkdtemp(dir=settings.state.dir.parent))
    spark = session.open_session(
        chosen.spark,
        name="bench",
        partitions=chosen.run.slots or session.count_cores(chosen.spark),
        scratch=scratch,
        output=scratch / "spark.log",
    )
    warm_up_batches: list[int] = []
    run(
        _make_jobs(case),
        settings=chosen.with_options(run_name="warm-up", run_max_events_per_batch=200),
        take_over=True,
        spark=spark,
        report=lambda batch, _: warm_up_batches.append(batch),
        stop=lambda: len(warm_up_batches) >= JVM_WARM_UP,
    )
    run(
        _make_jobs(case),
        settings=chosen,
        take_over=True,
        spark=spark,
        report=lambda _, results: meter.add_batch(results.counts["read"]),
        stop=lambda: meter.is_full,
    )


def _run_plain_spark(case: Case, settings: Settings, meter: Meter) -> None:
    from bench import plain_spark

    state = settings.state.dir
    events = plain_spark.from_files(Path(case.folder, "files", str(case.rows_per_batch)))
    deliver, delay = None, "61 seconds" if case.runner == "spark-sql-complete" else "1 second"
    if case.runner != "spark-sql-parquet":
        events, deliver = (
            plain_spark.from_log(_plain_source_spec(settings), _to_cells),
            _Delivery(settings.log.url),
        )
    warm_up_batches: list[int] = []
    warm_up_count = min(case.batches, JVM_WARM_UP)
    plain_spark.run_query(
        events,
        state=state / "warm-up",
        delay=delay,
        deliver=deliver,
        report=warm_up_batches.append,
        stop=lambda: len(warm_up_batches) >= warm_up_count,
    )
    if deliver is not None:
        deliver = _Delivery(settings.log.url)
    plain_spark.run_query(
        events, state=state, delay=delay, deliver=deliver, report=meter.add_batch, stop=lambda: meter.is_full
    )


def _plain_source_spec(settings: Settings) -> SourceSpec:
    """The source of plain SQL: the same tasks and batches as millrace's."""
    from millrace.engine.plan import Plan
    from millrace.runners.spark import session
    from millrace.runners.spark.open_logs import LogLocation
    from millrace.runners.spark.serialized_plan import SerializedPlan
    from millrace.runners.spark.source import SourceSpec
    from millrace.transit.jobs.vehicle_distribution import vehicle_distribution

    plan = Plan.of([vehicle_distribution()], slots=1)
    topics = tuple(topic.name for topic in plan.topics)
    limit = settings.run.max_events_per_batch
    return SourceSpec(
        SerializedPlan.pack(plan),
        topics,
        LogLocation.of(settings),
        (0,),
        limit,
        settings.run.tick_ms,
        plan.needs_ticks,
        session.count_cores(settings.spark),
    )


def _to_cells(rows: pl.DataFrame) -> pl.DataFrame:
    from millrace.geo import geocell

    return rows.select("vehicle_id", geocell().alias("geocell"), pl.from_epoch("event_time", time_unit="ms"))


class _Delivery:
    """Writes results to the log in one transaction with the number of the batch,
    as a careful user of plain SQL would.
    """

    def __init__(self, url: str) -> None:
        from millrace.log import open_log
        from millrace.transit.topics import CELL_COUNTS

        log = open_log(url)
        log.ensure(CELL_COUNTS)
        self._topic, self._writer = CELL_COUNTS, log.writer(f"plain-{time.time_ns()}")

    def __call__(self, found: pl.DataFrame, batch: int) -> None:
        from millrace.log.codecs.codec import encode

        rows = found.select("geocell", "count", (pl.col("window_end") - 1).alias("event_time"))
        self._writer.commit(batch, {self._topic.name: encode(self._topic, rows)} if rows.height else {})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(measure(Case(**json.loads(sys.argv[1]))))) + "\n")
    sys.stdout.flush()
    os._exit(0)
