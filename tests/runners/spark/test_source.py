"""The log as a Spark source: what a batch takes, when one is due, and who reads what. No JVM is started."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import millrace as mr
from millrace import watermarks, windows
from millrace.engine.exchange import Body
from millrace.engine.plan import Plan
from millrace.engine.progress import PartitionWatermark
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.runners import batches
from millrace.runners.bounded import BoundedRun
from millrace.runners.spark.open_logs import LogLocation
from millrace.runners.spark.serialized_plan import SerializedPlan
from millrace.runners.spark.source import LogStreamReader, ReadTask, SourceSpec, deal_ranges, read_packets
from millrace.runners.spark.watermark_file import write_watermarks

TICK = 1_000
ALL = ReadAllAvailable()


@dataclass
class Reading:
    sensor: str
    value: int


READINGS = mr.Topic("input.readings", Reading, key="sensor", partitions=3)
TOTALS = mr.Topic("analytics.totals", Reading, key="sensor")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path}/log")
    log.ensure(READINGS)
    yield log
    log.close()


def append(log: Log, count: int) -> None:
    rows = {"sensor": [f"s{n % 10}" for n in range(count)], "value": range(count), "event_time": range(count)}
    log.append(READINGS.name, encode(READINGS, pl.DataFrame(rows), ingestion_time=5))


class Clock:
    now = 10_000

    def __call__(self) -> int:
        return self.now


def reader(
    log: Log, clock: Clock, *, ticks: bool = False, until_caught_up: bool = False, until_end: bool = False
) -> LogStreamReader:
    job = mr.Job(
        "totals", mr.read(READINGS).window(windows.fixed("10s")).group_by("sensor").sum("value").write(TOTALS)
    )
    plan = Plan.of([job], slots=4)
    shipped = SerializedPlan.pack(plan)
    start = batches.beginning_offsets(log, plan.topics)
    bounded = BoundedRun.of(log, plan, start, until_end=until_end, retries_jobs=False)
    feed = SourceSpec(
        shipped,
        (READINGS.name,),
        LogLocation(log.url),
        labels=(10, 11, 12, 13),
        max_events=None,
        tick_ms=TICK,
        has_ticks=ticks,
        max_tasks=2,
        rows_per_task=10,
        bounded=pickle.dumps(bounded) if until_caught_up or until_end else None,
    )
    return LogStreamReader(feed, clock=clock)


def total(offset: dict[str, dict[str, dict[str, int]]]) -> int:
    return sum(offset["topics"][READINGS.name].values())


def test_nothing_new_means_the_same_offset_so_that_no_empty_batch_runs(log: Log) -> None:
    clock = Clock()
    source = reader(log, clock)
    start = source.latestOffset(source.initialOffset(), ALL)
    clock.now += 100_000
    assert source.latestOffset(start, ALL) is start


def test_the_very_first_batch_comes_at_once_so_that_all_partitions_are_known_from_then_on(log: Log) -> None:
    clock = Clock()
    source = reader(log, clock)
    assert source.latestOffset(source.initialOffset(), ALL) == {**source.initialOffset(), "clock": clock.now}
    source = reader(log, clock, until_caught_up=True)
    assert source.latestOffset(source.initialOffset(), ALL)["clock"] == clock.now, (
        "also where it is to end when it has caught up"
    )


def test_a_batch_without_events_comes_when_a_tick_is_due(log: Log) -> None:
    clock = Clock()
    source = reader(log, clock, ticks=True)
    first = source.latestOffset(source.initialOffset(), ALL)
    assert first["clock"] == clock.now
    clock.now += TICK - 1
    assert source.latestOffset(first, ALL) is first
    clock.now += 1
    assert source.latestOffset(first, ALL) == {**first, "clock": clock.now}


def test_a_batch_without_events_comes_when_the_writers_of_a_topic_have_vouched_for_more(log: Log) -> None:
    """And none comes for nothing, where nobody vouches for it."""
    large = mr.Topic("analytics.large", Reading, key="sensor", partitions=2)
    log.ensure(large)
    windowed = mr.read(large, watermark=watermarks.upstream()).window(windows.fixed("10s"))
    plan = Plan.of([mr.Job("follows", windowed.group_by("sensor").sum("value").write(TOTALS))], slots=1)
    assert not plan.can_be_read_ahead
    source = LogStreamReader(
        SourceSpec(
            SerializedPlan.pack(plan),
            (large.name,),
            LogLocation(log.url),
            labels=(10,),
            max_events=None,
            tick_ms=TICK,
            has_ticks=False,
            max_tasks=2,
            followed_topics=plan.followed_topics,
        ),
        clock=Clock(),
    )
    first = source.latestOffset(source.initialOffset(), ALL)
    assert source.latestOffset(first, ALL) is first
    log.writer("w").commit(0, {}, watermarks={large.name: 60_000})
    second = source.latestOffset(first, ALL)
    assert second["watermarks"] == {large.name: {"0": 60_000, "1": 60_000}}
    assert source.latestOffset(second, ALL) is second
    [task] = source.partitions(first, second)
    [packet] = read_packets(source._spec, task)
    clocks = [partition.clocks for partition in Body.decode(packet[1]).sources]
    assert clocks == [{"upstream": 60_000}] * 2


def test_the_clock_of_a_batch_never_goes_back(log: Log) -> None:
    clock = Clock()
    source = reader(log, clock)
    append(log, 3)
    first = source.latestOffset(source.initialOffset(), ALL)
    append(log, 3)
    clock.now -= 5_000
    assert source.latestOffset(first, ALL)["clock"] == first["clock"]


def test_a_limit_cuts_batches_that_lose_nothing(log: Log) -> None:
    source = reader(log, Clock())
    append(log, 100)
    offset, sizes = source.initialOffset(), []
    while (following := source.latestOffset(offset, ReadMaxRows(30))) is not offset:
        sizes.append(total(following) - total(offset))
        offset = following
    assert sum(sizes) == 100
    assert max(sizes) <= 30 + READINGS.partitions


def test_caught_up_means_with_the_log_as_it_was_at_the_start(log: Log) -> None:
    append(log, 10)
    source = reader(log, Clock(), ticks=True, until_caught_up=True)
    append(log, 10)
    caught_up = source.latestOffset(source.initialOffset(), ALL)
    assert total(caught_up) == 10
    assert source.latestOffset(caught_up, ALL) is caught_up


def test_the_end_is_a_batch_of_its_own_that_comes_once(log: Log) -> None:
    append(log, 10)
    source = reader(log, Clock(), ticks=True, until_end=True)
    read = source.latestOffset(source.initialOffset(), ALL)
    assert "ended" not in read
    end = source.latestOffset(read, ALL)
    assert end == {**read, "ended": [READINGS.name]}
    assert all(not task.rows and task.ended == {READINGS.name} for task in source.partitions(read, end))
    assert source.latestOffset(end, ALL) is end


def test_every_partition_is_in_every_batch_once(log: Log) -> None:
    source = reader(log, Clock(), ticks=True)
    start = source.initialOffset()
    for count in (0, 1, 100):
        append(log, count)
        end = source.latestOffset(start, ALL)
        places = [place for share in source.partitions(start, {**end, "clock": 99}) for place in share.ranges]
        assert sorted(number for _, number, _, _ in places) == [0, 1, 2]
        assert sum(stop - begin for *_, begin, stop in places) == count
        start = end


def test_an_empty_range_has_no_task(log: Log) -> None:
    source = reader(log, Clock())
    start = source.initialOffset()
    assert source.partitions(start, start) == []


def test_a_small_batch_is_one_task_and_a_large_one_as_many_as_there_are_cores() -> None:
    def tasks(*rows: int) -> list[int]:
        ranges = [("t", number, 0, count) for number, count in enumerate(rows)]
        return [share.rows for share in deal_ranges(ranges, 0, max_tasks=2, rows_per_task=10)]

    assert tasks(0, 0) == [0]
    assert tasks(5, 5, 5) == [15]
    assert tasks(100, 60, 50, 0) == [100, 110]
    assert tasks(100) == [100]


def test_a_task_sends_one_packet_to_every_slot_under_its_label(log: Log) -> None:
    source = reader(log, Clock())
    append(log, 50)
    (batch,) = source.read(
        ReadTask(
            now=77,
            ranges=[(READINGS.name, 0, 0, log.end_offsets(READINGS.name)[0]), (READINGS.name, 1, 0, 0)],
        )
    )
    assert batch["slot"].to_pylist() == [10, 11, 12, 13]
    bodies = [Body.decode(body) for body in batch["packet"].to_pylist()]
    assert {body.now for body in bodies} == {77}
    assert all(
        [(s.partition, s.has_rows) for s in body.sources] == [(0, True), (1, False)] for body in bodies
    )


def test_a_partition_far_ahead_is_not_read_until_the_others_have_caught_up(log: Log, tmp_path: Path) -> None:
    append(log, 30)
    clock = Clock()
    paced = LogStreamReader(
        replace(reader(log, clock)._spec, watermark_file=str(tmp_path / "reaches.json"), max_ahead_ms=1_000),
        clock=clock,
    )
    start = paced.initialOffset()
    every = paced.latestOffset(start, ALL)["topics"][READINGS.name]
    marks = [
        PartitionWatermark(READINGS.name, partition, 5_000 if partition == 1 else 0) for partition in range(3)
    ]
    write_watermarks(tmp_path / "reaches.json", {"totals/aggregation-1": marks})
    assert paced.latestOffset(start, ALL)["topics"][READINGS.name] == {**every, "1": 0}


def ahead_of(log: Log, clock: Clock, *, pace: Path | None = None) -> LogStreamReader:
    return LogStreamReader(
        replace(
            reader(log, clock)._spec,
            query_name="query",
            watermark_file=str(pace) if pace else None,
            max_ahead_ms=1_000,
        ),
        clock=clock,
    )


def test_where_a_whole_batch_waits_its_shares_are_known_before_and_stay_as_they_were_told(log: Log) -> None:
    source = ahead_of(log, Clock())
    append(log, 100)
    start = source.initialOffset()
    first = source.latestOffset(start, ReadMaxRows(30))
    ranges = [each.ranges for share in source.partitions(start, first) for each in share.following]
    append(log, 77)
    second = source.latestOffset(first, ReadMaxRows(30))
    assert [share.ranges for share in source.partitions(first, second)] == ranges
    assert total(second) - total(first) == pytest.approx(30, abs=READINGS.partitions)


def test_what_is_less_than_a_batch_is_left_to_grow(log: Log) -> None:
    source = ahead_of(log, Clock())
    append(log, 50)
    start = source.initialOffset()
    first = source.latestOffset(start, ReadMaxRows(30))
    assert not any(share.following for share in source.partitions(start, first))
    append(log, 50)
    assert total(source.latestOffset(first, ReadMaxRows(30))) - total(first) == pytest.approx(
        30, abs=READINGS.partitions
    )


def test_what_was_told_does_not_hold_where_a_partition_has_come_too_far_ahead_meanwhile(
    log: Log, tmp_path: Path
) -> None:
    source = ahead_of(log, Clock(), pace=tmp_path / "reaches.json")
    append(log, 100)
    start = source.initialOffset()
    first = source.latestOffset(start, ReadMaxRows(30))
    assert any(share.following for share in source.partitions(start, first))
    marks = [
        PartitionWatermark(READINGS.name, partition, 5_000 if partition == 1 else 0) for partition in range(3)
    ]
    write_watermarks(tmp_path / "reaches.json", {"totals/aggregation-1": marks})
    second = source.latestOffset(first, ReadMaxRows(30))
    assert second["topics"][READINGS.name]["1"] == first["topics"][READINGS.name]["1"]
    assert total(second) > total(first)


def test_nothing_is_told_where_answers_depend_on_when_they_are_asked_for() -> None:
    asked = mr.read(READINGS).lookup(lambda sensor: None, "sensor", schema={"place": str})
    assert not Plan.of(
        [mr.Job("asks", asked.select("sensor", "value").write(TOTALS))], slots=1
    ).can_be_read_ahead
    assert Plan.of([mr.Job("silent", mr.read(READINGS).write(TOTALS))], slots=1).can_be_read_ahead
