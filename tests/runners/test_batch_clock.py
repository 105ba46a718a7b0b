"""A clock that jumps: batches go on as time passes, and retention does not follow."""

import logging
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.runners.batch_clock import BatchClock, wall_clock
from millrace.runners.local import Hooks, run_local

YEAR = 365 * 86_400_000


class Machine:
    """A machine whose clocks are moved by hand."""

    def __init__(self) -> None:
        self.wall = self.elapsed = 1_000_000

    def passes(self, ms: int, *, jump: int = 0) -> None:
        self.wall += ms + jump
        self.elapsed += ms

    def clock(self) -> BatchClock:
        return BatchClock(lambda: self.wall, lambda: self.elapsed)


def test_the_clock_of_batches_is_the_wall_clock() -> None:
    machine = Machine()
    clock, last = machine.clock(), 0
    for ms in (10, 1_000, 7):
        machine.passes(ms)
        last = clock.after(last)
        assert last == machine.wall


def test_after_one_jump_ahead_the_clock_of_batches_goes_on_as_time_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    clock = machine.clock()
    first = clock.after(0)
    machine.passes(1_000, jump=YEAR)
    with caplog.at_level(logging.WARNING):
        second = clock.after(first)
        machine.passes(1_000, jump=-YEAR)
        third = clock.after(second)
        machine.passes(500)
        fourth = clock.after(third)
    assert (second, third - second, fourth - third) == (first + 1_000 + YEAR, 1_000, 500)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "the clock of this machine jumped 365d ahead (or the machine was suspended)",
        "the clock of this machine is 365d behind the last batch, so it had jumped",
    ]


def test_a_run_that_starts_behind_its_last_batch_goes_on_as_time_passes() -> None:
    machine = Machine()
    clock, last = machine.clock(), machine.wall + YEAR
    assert clock.after(last) == last
    machine.passes(250)
    assert clock.after(last) == last + 250


@dataclass
class Event:
    key: str


@dataclass
class Count:
    key: str
    count: int


EVENTS = mr.Topic("input.events", Event, key="key", partitions=2, retention="1h")
COUNTS = mr.Topic("analytics.counts", Count, key="key")


def counts() -> mr.Job:
    rows = mr.read(EVENTS, watermark=watermarks.bounded("1s", idle="10s"))
    return mr.Job("counts", rows.window(windows.fixed("10s")).group_by("key").count().write(COUNTS))


def test_idle_partitions_are_left_out_after_a_jump_and_retention_keeps_the_inputs(tmp_path: Path) -> None:
    machine, start = Machine(), wall_clock()
    machine.wall = start
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(EVENTS)
    rows = pl.DataFrame({"key": ["a"] * 30, "event_time": [start - 60_000 + n * 1_000 for n in range(30)]})
    log.append(EVENTS.name, encode(EVENTS, rows, ingestion_time=start))
    batches = 0

    def step() -> bool:
        """Before each batch a second passes; the first is planned while the clock is a year ahead."""
        nonlocal batches
        machine.passes(1_000, jump={0: YEAR, 1: -YEAR}.get(batches, 0))
        batches += 1
        return batches > 30

    hooks = Hooks(stop=step, clock=lambda: machine.wall, elapsed=lambda: machine.elapsed)
    chosen = Settings().with_options(log_url=log.url, state_dir=str(tmp_path / "state"))
    run_local([counts()], settings=chosen, hooks=hooks)
    assert sum(log.start_offsets(EVENTS.name).values()) == 0, (
        "retention follows when records were appended, not a clock that jumped"
    )
    assert sum(log.end_offsets(COUNTS.name).values()) > 0, (
        "the partition without events is idle after ten seconds, not after a year"
    )
    log.close()


def test_a_run_that_starts_while_the_clock_is_a_year_ahead_removes_no_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = wall_clock()
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(EVENTS)
    rows = pl.DataFrame({"key": ["a"] * 30, "event_time": [start - 60_000 + n * 1_000 for n in range(30)]})
    log.append(EVENTS.name, encode(EVENTS, rows, ingestion_time=start))
    monkeypatch.setattr("millrace.runners.commit._clock", lambda: start + YEAR)
    chosen = Settings().with_options(log_url=log.url, state_dir=str(tmp_path / "state"))
    run_local([counts()], settings=chosen, until_caught_up=True, hooks=Hooks(clock=lambda: start + YEAR))
    assert sum(log.end_offsets(COUNTS.name).values()) > 0
    assert sum(log.start_offsets(EVENTS.name).values()) == 0, (
        "nothing is a year older than when it was appended"
    )
    log.close()
