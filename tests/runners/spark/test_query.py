"""The same events give the same last words on Spark, in any cuts and over stops, as in the engine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

import millrace as mr
from bench.spark_foreground import run
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.errors import RunFailed, StateMismatch
from millrace.log import Log
from millrace.log.dead_letters import dead_topic
from millrace.log.status import parse_statuses
from millrace.panes import Delivery
from millrace.runners.spark.query import group_depths
from runners.spark.readings import (
    COPIES,
    READINGS,
    SPREADS,
    TOTALS,
    append,
    assert_exactly_once,
    copies,
    letters,
    readings,
    spreads,
    totals,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_fused_jobs_in_any_cuts_and_over_stops_say_the_same(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    """Two jobs, one and two stages deep; each run goes on where the last one stopped."""
    jobs, rows = [totals(), spreads()], readings(1_500)
    sizes: list[int] = []
    for first, last, most in ((0, 700, 100_000), (700, 1_100, 60), (1_100, 1_500, 250)):
        append(log, rows[first:last])
        cut = settings.with_options(run_max_events_per_batch=most)
        run(
            jobs,
            settings=cut,
            spark=spark,
            until_caught_up=True,
            report=lambda _, results: sizes.append(results.counts["read"]),
        )
        assert_exactly_once(log, jobs, [TOTALS, SPREADS])
    assert sum(sizes) == sum(log.end_offsets(READINGS.name).values())
    assert len(sizes) >= 9
    statuses = parse_statuses(log.read("status.test", 0, 0, log.end_offsets("status.test")[0]))
    assert [status.read for status in statuses] == sizes
    assert {
        topic: sum(status.results[topic] for status in statuses) for topic in (TOTALS.name, SPREADS.name)
    } == {topic: sum(log.end_offsets(topic).values()) for topic in (TOTALS.name, SPREADS.name)}
    assert (statuses[-1].lag, statuses[-1].watermark_of("spreads") is not None) == ({READINGS.name: 0}, True)
    assert max(status.lag[READINGS.name] for status in statuses) > 200, (
        "small batches leave the rest for the next"
    )


def test_with_one_slot_all_depths_share_a_stage_and_say_the_same(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    """State of both depths is in one map, and found again after a stop."""
    jobs, rows = [totals(), spreads()], readings(900)
    assert group_depths(2, 1) == [(1, 2)]
    for first, last, most in ((0, 400, 60), (400, 900, 200)):
        append(log, rows[first:last])
        run(
            jobs,
            settings=settings.with_options(run_slots=1, run_max_events_per_batch=most),
            spark=spark,
            until_caught_up=True,
        )
        assert_exactly_once(log, jobs, [TOTALS, SPREADS])


def test_a_job_without_keys_needs_no_stage(spark: SparkSession, log: Log, settings: Settings) -> None:
    rows = readings(200)
    append(log, rows)
    run([copies()], settings=settings, spark=spark, until_caught_up=True)
    expected = rows.filter(rows["value"] % 10 == 0)
    assert sorted(written(log, COPIES).select("sensor", "value", "event_time").rows()) == sorted(
        expected.select("sensor", "value", "event_time").rows()
    )
    assert (
        sum(letters(log, dead_topic(READINGS.name)).values())
        == len(letters(log, dead_topic(READINGS.name)))
        > 0
    )


def test_an_empty_topic_is_no_error_and_a_run_on_it_ends(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    for _ in range(2):
        run([totals()], settings=settings, spark=spark, until_caught_up=True)
        assert written(log, TOTALS).is_empty()


def test_a_batch_that_is_already_in_the_log_is_not_written_again(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    """As after a kill between the log's commit and Spark's."""
    rows = readings(800)
    append(log, rows[:400])
    run([totals()], settings=settings, spark=spark, until_caught_up=True)
    commits = settings.state.dir / "test" / "checkpoint" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    append(log, rows[400:])
    batches: list[int] = []
    run(
        [totals()],
        settings=settings,
        spark=spark,
        until_caught_up=True,
        report=lambda batch, _: batches.append(batch),
    )
    assert batches == [0, 1], "the first batch is computed again"
    assert_exactly_once(log, [totals()], [TOTALS])


def test_a_batch_that_is_repeated_is_written_as_each_job_says(
    spark: SparkSession, log: Log, settings: Settings
) -> None:
    deliveries: tuple[Delivery, ...] = ("exactly_once", "at_least_once", "at_most_once")
    topics = [dataclasses.replace(TOTALS, name=f"analytics.{delivery}") for delivery in deliveries]
    window = mr.read(READINGS, watermark=watermarks.bounded("1s")).window(windows.fixed("5s"))
    jobs = [
        mr.Job(delivery, window.group_by("sensor").sum("value").write(topic), delivery=delivery)
        for delivery, topic in zip(deliveries, topics, strict=True)
    ]
    append(log, readings(400))
    run(jobs, settings=settings, spark=spark, until_caught_up=True)
    first = [sum(log.end_offsets(topic.name).values()) for topic in topics]
    assert first[0] > 20
    for file in (settings.state.dir / "test" / "checkpoint" / "commits").glob("*0*"):
        file.unlink()
    run(jobs, settings=settings, spark=spark, until_caught_up=True)
    exact, least, most = (sum(log.end_offsets(topic.name).values()) for topic in topics)
    assert (exact, least, most) == (first[0], first[0], first[0]), (
        "the log knew the batch, so nothing of it was written again"
    )
    run(
        jobs[1:],
        settings=settings.with_options(run_name="loose"),
        spark=spark,
        until_caught_up=True,
        take_over=True,
    )
    for file in (settings.state.dir / "loose" / "checkpoint" / "commits").glob("*0*"):
        file.unlink()
    run(jobs[1:], settings=settings.with_options(run_name="loose"), spark=spark, until_caught_up=True)
    assert [sum(log.end_offsets(topic.name).values()) for topic in topics[1:]] == [
        3 * first[0],
        2 * first[0],
    ], "twice more, and once more"


def test_a_log_that_lacks_what_the_state_has_completed_is_refused(
    spark: SparkSession, log: Log, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    append(log, readings(50))
    run([totals()], settings=settings, spark=spark, until_caught_up=True)
    other = settings.with_options(log_url=f"embedded:{tmp_path_factory.mktemp('other')}/log")
    with pytest.raises(StateMismatch, match="results are missing"):
        run([totals()], settings=other, spark=spark, until_caught_up=True)


def test_an_exception_in_a_jobs_own_code_is_named(spark: SparkSession, log: Log, settings: Settings) -> None:
    def broken(frame: object) -> object:
        if len(frame):  # type: ignore[arg-type]
            raise ZeroDivisionError("by design")
        return frame

    append(log, readings(10))
    job = mr.Job(
        "broken",
        mr.read(READINGS)
        .map_batches(broken)  # type: ignore[arg-type]
        .window(windows.fixed("1s"))
        .group_by("sensor")
        .sum("value")
        .write(TOTALS),
    )
    with pytest.raises(RunFailed, match="ZeroDivisionError: by design"):
        run([job], settings=settings, spark=spark, until_caught_up=True)
