"""Runs on Spark that end by themselves: all that waits is completed once, whatever was killed meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import millrace as mr
from bench import spark_foreground
from millrace.errors import RunFailed, StreamEnded
from millrace.log import Log, fault_points, open_log
from millrace.log.codecs.codec import encode
from millrace.log.status import parse_statuses
from millrace.runners.replay import replay
from runners import ending_jobs
from runners.ending_jobs import (
    PEAKS,
    READINGS,
    TOTALS,
    chained,
    everything,
    fill,
    lows,
    peaks,
    rings,
    rows,
    settings,
    totals,
    written,
)
from runners.test_bounded import check_chain, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    fill(opened, 600)
    yield opened
    opened.close()


def run(jobs: Sequence[mr.Job], **options: Any) -> None:
    """A supervisor would start a query again whose worker got no CPU time for 10 s; here is none."""
    for _ in range(4):
        try:
            return spark_foreground.run(jobs, **options)
        except RunFailed as error:
            if "failed to connect back" not in str(error):
                raise
    raise AssertionError("the machine is too busy for Spark")


def ended(log: Log) -> list[list[str]]:
    """What had ended after each batch."""
    if "status.ending" not in log.list_topics():
        return []
    return [
        status.ended
        for status in parse_statuses(log.read("status.ending", 0, 0, log.end_offsets("status.ending")[0]))
    ]


def test_chained_jobs_and_those_beside_them_end_as_in_a_replay(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    by_row = [rings(), lows()]
    jobs = [*chained(), everything(), *by_row]
    chosen = settings(log.url, tmp_path / "state", run_max_events_per_batch=250)
    run(jobs, settings=chosen, spark=spark, until_end=True)
    check_chain(log)
    for job in by_row:
        found, expected = written(log, job.outputs[0].topic), replay(job, READINGS, log=log.url)
        assert sorted(found.select(expected.columns).rows()) == sorted(expected.rows())
    whole = replay(everything(), READINGS, log=log.url)
    assert values(written(log, ending_jobs.ALL)) == values(whole)
    assert ended(log)[-1] == sorted([READINGS.name, TOTALS.name, PEAKS.name])
    batches = len(ended(log))
    run(jobs, settings=chosen, spark=spark, until_end=True)
    assert len(ended(log)) == batches, "nothing is left to do"
    log.append(READINGS.name, encode(READINGS, rows(3)))
    for modes in ({"until_end": True}, {"until_caught_up": True}, {}):
        with pytest.raises(StreamEnded, match=r"input\.readings got rows after that"):
            run(jobs, settings=chosen, spark=spark, **modes)


def test_an_end_that_is_repeated_at_any_batch_is_the_same(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """Every batch is killed once, between its commit to the log and Spark's own: it is repeated."""
    chosen, seen = settings(log.url, tmp_path / "state"), set[int]()

    def report(batch: int, _results: Any) -> None:
        if batch not in seen:
            seen.add(batch)
            raise InterruptedError("injected")

    for _ in range(20):
        try:
            run([peaks(), totals()], settings=chosen, spark=spark, until_end=True, report=report)
            break
        except Exception as error:
            if "injected" not in str(error):
                raise
    assert len(seen) >= 4
    check_chain(log, TOTALS, PEAKS)
    assert ended(log)[-1] == sorted([READINGS.name, TOTALS.name])
    assert len(ended(log)) == len(seen)


def test_a_bounded_frame_in_and_complete_results_out(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    own = f"embedded:{tmp_path / 'own'}"
    frame = rows(600).drop("ingestion_time")
    spark_frame = spark.createDataFrame(frame.to_arrow())
    mr.from_dataframe(spark_frame, READINGS, time="event_time", log=own)
    mr.run(everything(), on="local", settings=settings(own, tmp_path / "state"), until_end=True)
    results = everything().to_dataframe(spark, log=own).collect()
    expected = replay(everything(), frame)
    assert sorted((row.sensor, row.total) for row in results) == sorted(
        expected.select("sensor", "total").rows()
    )


def test_catching_up_reads_what_the_run_itself_writes(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, tmp_path / "state", run_max_events_per_batch=300)
    read: list[int] = []

    def report(_: int, results: Any) -> None:
        read.append(results.counts.get(f"read/{READINGS.name}", 0))
        log.append(READINGS.name, encode(READINGS, rows(50)))

    run(chained(), settings=chosen, spark=spark, until_caught_up=True, report=report)
    assert sum(read) == 600, "rows that come meanwhile are left for the next run"
    statuses = parse_statuses(log.read("status.ending", 0, 0, log.end_offsets("status.ending")[0]))
    assert statuses[-1].reached[PEAKS.name] == sum(log.end_offsets(PEAKS.name).values()) > 0
    assert not statuses[-1].ended


@pytest.mark.long
def test_kill_9_of_the_driver_at_each_batch_of_the_end(log: Log, tmp_path: Path) -> None:
    """The supervisor starts it again, and it is killed again at its second batch."""
    child = subprocess.run(
        [sys.executable, ending_jobs.__file__, log.url, str(tmp_path / "state"), "spark"],
        env={**os.environ, fault_points.VARIABLE: "computed:3"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stderr.count("ended by signal 9") >= 2
    check_chain(log)


def test_a_job_that_fails_at_the_end_completes_when_it_is_tried_again(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    flag = tmp_path / "fails"
    flag.touch()
    job = mr.Job(
        "rings", ending_jobs.readings().group_by("sensor").process(_Breaks(flag)).write(ending_jobs.RINGS)
    )
    chosen = settings(log.url, tmp_path / "state")
    with pytest.raises(mr.errors.JobQuarantined, match="at the end"):
        run([job, *chained()], settings=chosen, spark=spark, until_end=True)
    check_chain(log)
    assert written(log, ending_jobs.RINGS).is_empty()
    flag.unlink()
    run([job, *chained()], settings=chosen, spark=spark, until_end=True, retry=("rings",))
    assert len(written(log, ending_jobs.RINGS)) == 5
    check_chain(log)


class _Breaks(ending_jobs.Rings):
    """Its timers raise while a file is there."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def on_timer(self, ctx: Any, name: str) -> None:
        if self._flag.exists():
            raise ZeroDivisionError("at the end")
        super().on_timer(ctx, name)
