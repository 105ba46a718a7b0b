"""A job that follows the watermark of the one that writes its topic: results come as soon as that allows."""

import os
import runpy
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.cli.main import main
from millrace.devtools.brokers import Cluster
from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.log import Log, OutgoingRecords, fault_points, open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import late_topic
from millrace.log.writer_watermarks import watermarks_at
from millrace.runners.local import Hooks, run_local
from millrace.runners.replay import replay
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.savepoint import save
from runners import chained_jobs
from runners.chained_jobs import (
    ALERTS,
    READINGS,
    TOTALS,
    alerts,
    alerts_until,
    feed,
    rows_of,
    run,
    settings,
    shown_alerts,
    totals,
)

LATENESS = 30_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    yield opened
    opened.close()


def vouched(log: Log) -> dict[int, int]:
    return watermarks_at(log.writer_watermarks(TOTALS.name), log.end_offsets(TOTALS.name))


def late_rows(log: Log, job: str) -> int:
    return sum(log.end_offsets(late_topic(job)).values())


def test_each_run_shows_all_that_the_first_jobs_watermark_allows(log: Log, tmp_path: Path) -> None:
    for second in range(0, 500, 50):
        feed(log, second, 50)
        run(log.url, str(tmp_path), "totals")
        watermark = (second + 49 - 1) * 1_000 - LATENESS
        assert vouched(log) == {0: watermark, 1: watermark}
        run(log.url, str(tmp_path), "alerts")
        assert shown_alerts(log) == alerts_until(watermark)
    assert late_rows(log, "alerts") == 0
    assert not (rows_of(log, TOTALS)["event_time"] >= 300_000).any(), "from there on only the watermark moves"


def test_in_one_run_the_second_job_keeps_up(log: Log, tmp_path: Path) -> None:
    feed(log, 0, 400)
    hooks = Hooks(stop=lambda: ALERTS.name in log.list_topics() and len(rows_of(log, ALERTS)) == 5)
    run_local([totals(), alerts()], settings=settings(log.url, str(tmp_path), "both"), hooks=hooks)
    assert shown_alerts(log) == alerts_until(369_000)


@pytest.mark.parametrize("seconds", [150, 400])
def test_in_one_run_that_catches_up_nothing_is_left(log: Log, tmp_path: Path, seconds: int) -> None:
    feed(log, 0, seconds)
    run(log.url, str(tmp_path), "totals", "alerts")
    assert shown_alerts(log) == alerts_until((seconds - 2) * 1_000 - LATENESS)


@pytest.mark.parametrize("together", [True, False])
def test_where_the_first_stream_ends_the_second_is_completed(
    log: Log, tmp_path: Path, together: bool
) -> None:
    feed(log, 0, 290)
    if together:
        run(log.url, str(tmp_path), "totals", "alerts", until_end=True)
    else:
        run(log.url, str(tmp_path), "totals", until_end=True)
        run(log.url, str(tmp_path), "alerts")
    assert vouched(log) == {0: END_OF_STREAM, 1: END_OF_STREAM}
    assert shown_alerts(log) == alerts_until(300_000)
    assert late_rows(log, "alerts") == 0


def test_a_job_that_guessed_before_may_follow_from_now_on(log: Log, tmp_path: Path) -> None:
    """What the clock had come to by event times is not what the writers vouch for."""
    log.ensure(TOTALS)
    writer = log.writer("w")

    def total(time: int, watermark: int) -> None:
        row = pl.DataFrame({"sensor": ["s1"], "value": [200], "event_time": [time], "ingestion_time": [time]})
        written = encode(TOTALS, row)
        batch = OutgoingRecords(written.values, written.keys, partitions=np.zeros(1, np.int32))
        writer.commit(writer.last_marker + 1, {TOTALS.name: batch}, watermarks={TOTALS.name: watermark})

    def follow(watermark: watermarks.Watermark) -> None:
        rows = mr.read(TOTALS, watermark=watermark).window(windows.fixed("1m"))
        job = mr.Job("alerts", rows.group_by("sensor").count().write(ALERTS))
        run_local([job], settings=settings(log.url, str(tmp_path), "alerts"), until_caught_up=True)

    total(119_000, 0)
    follow(watermarks.bounded("90s"))
    total(35_000, 30_000)  # in time for both, though the clock stands at 119 s
    follow(watermarks.upstream())
    assert shown_alerts(log) == []
    total(125_000, 130_000)
    follow(watermarks.upstream())
    assert shown_alerts(log) == [("s1", 60_000, 1), ("s1", 120_000, 1)]
    assert late_rows(log, "alerts") == 0


def test_a_watermark_alone_brings_a_batch(log: Log, tmp_path: Path) -> None:
    log.ensure(TOTALS)
    row = {"sensor": ["s1", "s2"], "value": [200, 200], "event_time": [35_000, 35_000]}
    written = encode(TOTALS, pl.DataFrame(row).with_columns(ingestion_time="event_time"))
    batch = OutgoingRecords(written.values, written.keys, partitions=np.array([0, 1], np.int32))
    writer = log.writer("w")
    writer.commit(0, {TOTALS.name: batch}, watermarks={TOTALS.name: 40_000})
    run(log.url, str(tmp_path), "alerts")
    assert shown_alerts(log) == []
    writer.commit(1, {}, watermarks={TOTALS.name: 70_000})
    run(log.url, str(tmp_path), "alerts")
    assert sorted(shown_alerts(log)) == [("s1", 60_000, 1), ("s2", 60_000, 1)]


def test_a_chain_of_three(log: Log, tmp_path: Path) -> None:
    """What follows alerts goes by their watermark."""
    feed(log, 0, 400)
    for first in ("totals", "alerts"):
        run(log.url, str(tmp_path), first)
    last = mr.Topic("analytics.last", chained_jobs.Alert, key="sensor")
    per_two_minutes = mr.read(ALERTS, watermark=watermarks.upstream()).window(windows.fixed("2m"))
    job = mr.Job("last", per_two_minutes.group_by("sensor").sum("count").write(last))
    run_local([job], settings=settings(log.url, str(tmp_path), "last"), until_caught_up=True)
    assert rows_of(log, last).select("window_end", "count").rows() == [
        (120_000, 4),
        (240_000, 4),
        (360_000, 2),
    ]


def test_a_new_reader_and_a_replay_come_to_the_same(log: Log, tmp_path: Path) -> None:
    feed(log, 0, 450)
    run(log.url, str(tmp_path / "one"), "totals")
    run(log.url, str(tmp_path / "one"), "alerts")
    before = shown_alerts(log)
    replayed = replay(alerts(), TOTALS, log=log.url)
    assert replayed.select("sensor", "window_end", "count").rows() == before == alerts_until(418_000)


def test_the_example_shows_an_alarm_though_no_large_payment_follows(log: Log, tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "chained.py"))
    log.ensure(example["PAYMENTS"])
    seconds = range(300)
    frame = pl.DataFrame(
        {
            "card": [f"c{second % 4}" for second in seconds],
            "amount": [1500 if second in (12, 36) else 5 for second in seconds],
            "event_time": [second * 1_000 for second in seconds],
        }
    ).with_columns(ingestion_time="event_time")
    log.append("input.payments", encode(example["PAYMENTS"], frame))
    for name in ("large", "alarms"):
        run_local([example[name]], settings=settings(log.url, str(tmp_path), name), until_caught_up=True)
    assert rows_of(log, example["LARGE"])["card"].to_list() == ["c0", "c0"]
    assert rows_of(log, example["ALARMS"])["count"].to_list() == [2]


# Killed at any step


def run_killed(log: str, state: Path, job: str, place: str, time: int) -> None:
    """In a process of its own, which dies at the given place, if it comes there."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    ended = subprocess.run(
        [sys.executable, chained_jobs.__file__, log, str(state), job],
        env={**os.environ, "PYTHONPATH": path, "MILLRACE_FAULT": f"{place}:{time}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr


def check_killed(log: Log, state: Path, places: tuple[str, ...]) -> None:
    """Both jobs die at every step, one after the other; what they vouch for never holds too early."""
    for number, place in enumerate(places):
        feed(log, number * 60, 60)
        for job in ("totals", "alerts"):
            run_killed(log.url, state, job, place, 1 + number % 2)
            if ALERTS.name in log.list_topics():
                assert shown_alerts(log) == alerts_until(10**9)[: len(shown_alerts(log))]
    for job in ("totals", "alerts"):
        run(log.url, str(state), job)
    watermark = (60 * len(places) - 2) * 1_000 - LATENESS
    assert vouched(log) == {0: watermark, 1: watermark}
    assert shown_alerts(log) == alerts_until(watermark) == alerts_until(10**9)
    assert late_rows(log, "alerts") == 0


@pytest.mark.slow
def test_killed_at_any_step_nothing_is_missing_doubled_or_wrong(log: Log, tmp_path: Path) -> None:
    places = ("planned", "computed", "delivered", "stored")
    check_killed(log, tmp_path, places + places)


@pytest.mark.kafka
@pytest.mark.slow
def test_on_kafka_too(brokers: Cluster, tmp_path: Path) -> None:
    log = open_log(f"{brokers.url}/chained-{uuid.uuid4().hex[:8]}")
    check_killed(log, tmp_path, fault_points.POINTS)
    log.close()


# Several writers, and those that are gone


def test_of_two_writers_the_least_counts_until_one_is_withdrawn(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(log, 0, 400)
    log.ensure(TOTALS)
    log.writer("other").commit(0, {}, watermarks={TOTALS.name: 130_000})
    for job in ("totals", "alerts"):
        run(log.url, str(tmp_path), job)
    assert shown_alerts(log) == alerts_until(130_000)
    words = ["topics", "watermarks", TOTALS.name, "--log", log.url]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "other" in shown
    assert "1970-01-01 00:02:10.000" in shown
    assert main([*words, "--withdraw", "nobody"]) == 1
    assert "'nobody' does not vouch for 'analytics.large'" in capsys.readouterr().err
    assert main([*words, "--withdraw", "other"]) == 0
    assert "other" not in capsys.readouterr().out
    run(log.url, str(tmp_path), "alerts")
    assert shown_alerts(log) == alerts_until(369_000)


def test_whoever_takes_a_topic_over_withdraws_the_watermark_of_the_writer_before(
    log: Log, tmp_path: Path
) -> None:
    feed(log, 0, 100)
    run(log.url, str(tmp_path / "one"), "totals")
    [before] = log.writer_watermarks(TOTALS.name)
    run_local(
        [totals()],
        settings=settings(log.url, str(tmp_path / "two"), "totals"),
        until_caught_up=True,
        take_over=True,
    )
    [after] = log.writer_watermarks(TOTALS.name)
    assert before != after


def test_a_chain_goes_on_from_savepoints(log: Log, tmp_path: Path) -> None:
    feed(log, 0, 150)
    for job in ("totals", "alerts"):
        run(log.url, str(tmp_path / "one"), job)
        with lock_folder(tmp_path / "one" / job) as folder:
            save(folder, tmp_path / f"{job}.savepoint")
    assert shown_alerts(log) == alerts_until(118_000)
    feed(log, 150, 250)
    for made in (totals(), alerts()):
        run_local(
            [made],
            settings=settings(log.url, str(tmp_path / "two"), made.name),
            until_caught_up=True,
            restore=tmp_path / f"{made.name}.savepoint",
        )
    assert len(log.writer_watermarks(TOTALS.name)) == 1, "that of the state before is withdrawn"
    assert shown_alerts(log) == alerts_until(368_000)


def test_a_topic_for_which_nobody_vouches_does_not_hold_back_idle_readers(log: Log, tmp_path: Path) -> None:
    """`idle=` counts as with every watermark: from the last row or the last move of the watermark on."""
    feed(log, 0, 400)
    run(log.url, str(tmp_path), "totals")
    other = mr.Topic("analytics.other", chained_jobs.Total, key="sensor")
    log.ensure(other)
    both = mr.read(TOTALS, watermark=watermarks.upstream()).union(
        mr.read(other, watermark=watermarks.upstream(idle="2s"))
    )
    job = mr.Job("both", both.window(windows.fixed("1m")).group_by("sensor").count().write(ALERTS))
    seconds = iter(range(400, 10_000))
    hooks = Hooks(
        clock=lambda: next(seconds) * 1_000,
        stop=lambda: ALERTS.name in log.list_topics() and len(rows_of(log, ALERTS)) > 0,
    )
    run_local([job], settings=settings(log.url, str(tmp_path), "both"), hooks=hooks)
    assert rows_of(log, ALERTS)["window_end"].to_list()[:1] == [60_000]


# What cannot be vouched for


def following(first: mr.Job) -> list[mr.Job]:
    return [first, alerts()]


def refuse(first: mr.Job, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=reason):
        run_local(following(first), settings=settings(f"embedded:{tmp_path / 'log'}", str(tmp_path), "x"))


def test_a_topic_that_cannot_be_vouched_for_is_refused_with_the_reason(tmp_path: Path) -> None:
    rows = mr.read(READINGS, watermark=watermarks.bounded("1s"))
    sums = rows.window(windows.fixed("10s")).group_by("sensor").sum("value")
    at_least_once = mr.Job("first", sums.write(TOTALS), delivery="at_least_once")
    refuse(at_least_once, "'first' cannot vouch for the topic, as it delivers at least once", tmp_path)
    late = sums.late().select("sensor", "value")
    refuse(
        mr.Job("first", late.write(TOTALS)), "it writes late rows at their own time, which is over", tmp_path
    )
    moved = sums.with_columns(event_time=pl.col("event_time") - 5)
    refuse(mr.Job("first", moved.write(TOTALS)), r"a step before write\(\) sets event_time", tmp_path)
    cut = rows.window(windows.counted(3)).group_by("sensor").sum("value")
    refuse(mr.Job("first", cut.write(TOTALS)), "windows that rows cut", tmp_path)
    open_ended = rows.window(windows.sessions("10s"), time="earliest").group_by("sensor").sum("value")
    refuse(mr.Job("first", open_ended.write(TOTALS)), "has no fixed size", tmp_path)
