"""Runs that end by themselves: they read all there is, also what they write, and complete all that waits."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import panes, watermarks, windows
from millrace.cli.main import main
from millrace.errors import JobQuarantined, StreamEnded
from millrace.log import Log, fault_points, open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import late_topic
from millrace.log.status import parse_statuses
from millrace.runners.batches import Offsets
from millrace.runners.bounded import ending_order
from millrace.runners.local import Hooks, run_local
from millrace.runners.replay import replay
from runners import ending_jobs
from runners.crashes import inject_crashes
from runners.ending_jobs import (
    PEAKS,
    READINGS,
    SUMS,
    TOTALS,
    chained,
    clocked,
    everything,
    fill,
    like_written,
    lows,
    peaks,
    rings,
    rows,
    settings,
    sums,
    totals,
    visits,
    written,
)


@dataclass
class Around:
    name: str
    round: int


NEWEST = 1_000_000 + 599 * 50
"""When the last of 600 events came in."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 600)
    yield log
    log.close()


def run_to_end(log: Log, tmp_path: Path, *jobs: mr.Job, **more: Any) -> None:
    chosen = settings(log.url, tmp_path / "state", **more)
    run_local(jobs, settings=chosen, until_end=True, hooks=Hooks(clock=lambda: NEWEST))


def replayed_chain(log: Log) -> dict[str, pl.DataFrame]:
    """What each of the chained jobs gives, replayed one after the other."""
    first = replay(totals(), READINGS, log=log.url)
    second = replay(peaks(), first.select("sensor", "total", "event_time"))
    third = replay(sums(), second.select("sensor", "total", "event_time"))
    return {TOTALS.name: first, PEAKS.name: second, SUMS.name: third}


def values(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The last value of each sensor and window."""
    return panes.latest_panes(frame, ["sensor"]).rows()


@pytest.mark.parametrize("make", [totals, visits, rings, everything, clocked, lows])
def test_a_run_to_the_end_gives_what_a_replay_gives(
    log: Log, tmp_path: Path, make: Callable[[], mr.Job]
) -> None:
    topic = make().outputs[0].topic
    expected = like_written(replay(make(), READINGS, log=log.url), topic)
    run_to_end(log, tmp_path, make())
    found = written(log, topic)
    assert found.rows() == expected.select(found.columns).rows()
    assert len(found) >= 5


def test_jobs_that_run_together_end_as_they_do_alone(log: Log, tmp_path: Path) -> None:
    windowed, by_row = [totals(), everything()], [rings(), lows()]
    run_to_end(log, tmp_path, *windowed, *by_row, run_max_events_per_batch=70)
    for job in windowed:
        found = written(log, job.outputs[0].topic)
        assert values(found) == values(replay(job, READINGS, log=log.url))
    for job in by_row:
        found, expected = written(log, job.outputs[0].topic), replay(job, READINGS, log=log.url)
        assert sorted(found.select(expected.columns).rows()) == sorted(expected.rows())


def test_chained_jobs_end_one_after_the_other_and_miss_nothing(log: Log, tmp_path: Path) -> None:
    assert order(chained(), READINGS, TOTALS, PEAKS) == [[READINGS.name], [TOTALS.name], [PEAKS.name]]
    run_to_end(log, tmp_path, *chained(), run_max_events_per_batch=150)
    check_chain(log)
    assert log.end_offsets(late_topic("peaks"))[0] == log.end_offsets(late_topic("sums"))[0] == 0
    statuses = parse_statuses(log.read("status.ending", 0, 0, log.end_offsets("status.ending")[0]))
    ended = [status.ended for status in statuses]
    assert [
        ended[number] for number in range(len(ended)) if ended[number - 1 : number] != [ended[number]]
    ] == [
        [],
        [READINGS.name],
        sorted([READINGS.name, TOTALS.name]),
        sorted([READINGS.name, TOTALS.name, PEAKS.name]),
    ]
    assert statuses[-1].has_ended("sums")


def test_topics_of_a_loop_end_together_and_after_what_feeds_it() -> None:
    begun, around, result = (mr.Topic(name, Around) for name in ("begun", "around", "result"))
    there = mr.Job("there", mr.feed_back(mr.read(begun).union(mr.read(around)), around, rounds=2))
    out = mr.Job("out", mr.read(around).write(result))
    last = mr.Job("last", mr.read(result).write(mr.Topic("done", Around)))
    assert order([last, out, there], result, around, begun) == [["begun"], ["around"], ["result"]]


@pytest.mark.parametrize("point", fault_points.POINTS[:2] + fault_points.POINTS[-1:])
@pytest.mark.slow
def test_kill_9_at_any_batch_of_the_end_loses_and_doubles_nothing(
    log: Log, tmp_path: Path, point: str
) -> None:
    """Each run is killed at the next batch but one, until one comes to its end."""
    kills = 0
    for _ in range(40):
        child = subprocess.run(
            [sys.executable, ending_jobs.__file__, log.url, str(tmp_path / "state"), "local"],
            env={**os.environ, fault_points.VARIABLE: f"{point}:2"},
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        kills += 1
    assert kills >= 3
    check_chain(log)


def check_chain(log: Log, *topics: mr.Topic) -> None:
    """Nothing of the chain is missing, doubled or wrong."""
    expected = replayed_chain(log)
    for topic in topics or (TOTALS, PEAKS, SUMS):
        found = written(log, topic)
        assert not found.select("sensor", "window_end", "index", "op").is_duplicated().any()
        assert values(found) == values(expected[topic.name])


@pytest.mark.parametrize("step", ["plan_batch", "commit", "commit_batch"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_any_step_of_an_ending_batch_changes_nothing(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    """In every batch in turn: of data, of the first end, of what came of it, and so on."""
    inject_crashes(monkeypatch, step, when, lambda call: call % 2 == 0)
    crashes = 0
    while True:
        try:
            run_to_end(log, tmp_path, *chained(), run_max_events_per_batch=300)
            break
        except MemoryError:
            crashes += 1
    assert crashes >= 4
    check_chain(log)


def test_a_batch_that_ended_topics_ends_them_again_when_it_is_repeated() -> None:
    offsets = Offsets({"a": {0: 3}, "b": {0: 0}}, 5, bounded=True, ended=frozenset({"a"}))
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert "ended" not in Offsets({"a": {0: 3}}, 5).to_json()
    assert not offsets.has_ended


def test_a_stream_that_has_ended_goes_on_only_to_do_nothing(log: Log, tmp_path: Path) -> None:
    run_to_end(log, tmp_path, totals())
    before = log.end_offsets(TOTALS.name), log.end_offsets("status.ending")
    chosen = settings(log.url, tmp_path / "state")
    for modes in ({"until_end": True}, {"until_caught_up": True}):
        run_local([totals()], settings=chosen, **modes)  # type: ignore[arg-type] # one of two flags
    assert (log.end_offsets(TOTALS.name), log.end_offsets("status.ending")) == before
    with pytest.raises(StreamEnded, match=r"has ended its stream \(--until-end\), so all rows that come"):
        run_local([totals()], settings=chosen)
    log.append(READINGS.name, encode(READINGS, rows(3)))
    for modes in ({"until_end": True}, {"until_caught_up": True}, {}):
        with pytest.raises(
            StreamEnded, match=r"input\.readings got rows after that.*millrace backfill.*another state folder"
        ):
            run_local([totals()], settings=chosen, **modes)  # type: ignore[arg-type] # one of two flags
    assert (log.end_offsets(TOTALS.name), log.end_offsets("status.ending")) == before
    run_local([totals()], settings=settings(log.url, tmp_path / "new"), until_end=True, take_over=True)


@pytest.mark.parametrize(("topics", "mode"), [(1, "until_end"), (3, "until_end"), (3, "until_caught_up")])
def test_an_end_that_was_begun_is_finished_whatever_came_meanwhile(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, mode: str
) -> None:
    from millrace.runners.state.checkpoint import Checkpoint

    real = Checkpoint.plan_batch

    def stop_at_the_end(self: Checkpoint, end: Offsets) -> None:
        real(self, end)
        if len(end.ended) == topics:
            raise MemoryError("injected")

    expected = replayed_chain(log)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "plan_batch", stop_at_the_end)
        with pytest.raises(MemoryError):
            run_to_end(log, tmp_path, *chained())
    chosen = settings(log.url, tmp_path / "state")
    with pytest.raises(StreamEnded, match=r"(was ending|has ended) its stream"):
        run_local(chained(), settings=chosen)
    log.append(READINGS.name, encode(READINGS, rows(30)))
    run_local(chained(), settings=chosen, **{mode: True})  # type: ignore[arg-type] # one of two flags
    assert values(written(log, SUMS)) == values(expected[SUMS.name])
    assert log.end_offsets(late_topic("totals"))[0] < 100, "of the first rows alone"


def test_an_empty_stream_ends(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(READINGS)
    run_to_end(log, tmp_path, *chained())
    assert written(log, SUMS).is_empty()
    log.close()


def test_catching_up_reads_what_the_run_itself_writes(log: Log, tmp_path: Path) -> None:
    chosen = settings(log.url, tmp_path / "state", run_max_events_per_batch=100)
    run_local(chained(), settings=chosen, until_caught_up=True)
    statuses = parse_statuses(log.read("status.ending", 0, 0, log.end_offsets("status.ending")[0]))
    assert statuses[-1].lag == {READINGS.name: 0, TOTALS.name: 0, PEAKS.name: 0}
    assert statuses[-1].reached[PEAKS.name] > 0
    assert not statuses[-1].ended
    run_to_end(log, tmp_path, *chained())
    check_chain(log)


def test_rows_that_come_while_it_catches_up_are_left_for_the_next_run(log: Log, tmp_path: Path) -> None:
    """Else it would not end while somebody writes faster than it reads."""
    read: list[int] = []

    def report(results: Any) -> None:
        read.append(results.counts.get(f"read/{READINGS.name}", 0))
        log.append(READINGS.name, encode(READINGS, rows(50)))

    chosen = settings(log.url, tmp_path / "state", run_max_events_per_batch=100)
    run_local(chained(), settings=chosen, until_caught_up=True, hooks=Hooks(report=report))
    assert sum(read) == 600


def test_a_job_that_fails_at_the_end_completes_when_it_is_tried_again(log: Log, tmp_path: Path) -> None:
    class Breaks(ending_jobs.Rings):
        fails = True

        def on_timer(self, ctx: Any, name: str) -> None:
            if Breaks.fails:
                raise ZeroDivisionError("at the end")
            super().on_timer(ctx, name)

    job = mr.Job(
        "rings", ending_jobs.readings().group_by("sensor").process(Breaks()).write(ending_jobs.RINGS)
    )
    with pytest.raises(JobQuarantined, match="at the end"):
        run_to_end(log, tmp_path, job, totals())
    assert values(written(log, TOTALS)) == values(replay(totals(), READINGS, log=log.url)), "it has ended"
    assert written(log, ending_jobs.RINGS).is_empty()
    Breaks.fails = False
    chosen = settings(log.url, tmp_path / "state")
    run_local([job, totals()], settings=chosen, until_end=True, retry=("rings",))
    assert len(written(log, ending_jobs.RINGS)) == 5


def test_the_last_line_says_that_the_stream_has_ended(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ending_program.py").write_text("from runners.ending_jobs import totals\njob = totals()\n")
    monkeypatch.chdir(tmp_path)
    words = ["run", "ending_program.py:job", "--on", "local", "--log", log.url, "--state", "state"]
    assert main([*words, "--until-end"]) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert "watermark at the end of the stream" in lines[-2]
    assert lines[-1].endswith(
        "the stream has ended: all windows, timers and patterns are complete (600 events)"
    )
    log.append(READINGS.name, encode(READINGS, rows(1)))
    assert main([*words, "--until-end"]) == 1
    assert "input.readings got rows after that" in capsys.readouterr().err


def test_one_job_that_reads_what_it_writes_ends_in_two_steps(log: Log, tmp_path: Path) -> None:
    window = ending_jobs.readings().window(windows.fixed("10s"))
    chain = mr.read(TOTALS, watermark=watermarks.bounded(0)).window(windows.fixed("1m"))
    job = mr.Job(
        "both",
        window.group_by("sensor").sum("value", name="total").write(TOTALS),
        chain.group_by("sensor").sum("total").write(PEAKS),
    )
    assert order([job], TOTALS, READINGS) == [[READINGS.name], [TOTALS.name]]
    run_to_end(log, tmp_path, job)
    shown = [written(log, topic)["total"].sum() for topic in (TOTALS, PEAKS)]
    assert shown[0] == shown[1] > 0


@pytest.mark.parametrize("is_together", [True, False])
def test_a_job_that_follows_another_ends_with_it(log: Log, tmp_path: Path, is_together: bool) -> None:
    """In one run, or in a run of its own that only catches up: how far the first vouches is the end."""
    window = mr.read(TOTALS, watermark=watermarks.upstream()).window(windows.fixed("20s"))
    follower = mr.Job("peaks", window.group_by("sensor").max("total").write(PEAKS))
    if is_together:
        run_to_end(log, tmp_path, follower, totals(), run_max_events_per_batch=150)
    else:
        run_to_end(log, tmp_path, totals(), run_max_events_per_batch=150)
        chosen = settings(log.url, tmp_path / "other")
        run_local([follower], settings=chosen.with_options(run_name="follower"), until_caught_up=True)
    check_chain(log, TOTALS, PEAKS)


def order(jobs: list[mr.Job], *topics: mr.Topic) -> list[list[str]]:
    return [sorted(together) for together in ending_order(jobs, [topic.name for topic in topics])]


def test_what_the_end_feeds_back_is_late_and_not_lost(tmp_path: Path) -> None:
    """A window that only the end completes feeds a loop that has ended: its row goes around, and is late."""
    around, seen = mr.Topic("around", Around, key="name"), mr.Topic("seen", Around, key="name")
    rows_around = mr.read(around, watermark=watermarks.bounded("1m"))
    counted = rows_around.window(windows.fixed("10s")).group_by("name").max("round")
    job = mr.Job("loop", rows_around.write(seen), mr.feed_back(counted, around, rounds=3))
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(around)
    begin = pl.DataFrame({"name": ["x"], "round": [0], "event_time": [1_000], "ingestion_time": [1_000]})
    log.append(around.name, encode(around, begin))
    run_to_end(log, tmp_path, job)
    assert sum(log.end_offsets(around.name).values()) == 2, "once around"
    assert sum(log.end_offsets(seen.name).values()) == 2, "a step without state passes both on"
    assert log.end_offsets(late_topic("loop"))[0] == 1
    log.close()
