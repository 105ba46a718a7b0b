"""Timers fire exactly once, whatever is killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from runners.timers_child import RUNG, STEPS, rings, settings

pytestmark = pytest.mark.slow
CHILD = Path(__file__).with_name("timers_child.py")
ROWS = 400


@pytest.fixture
def log(tmp_path: Path) -> Log:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    opened.ensure(STEPS)
    return opened


def steps(start: int, count: int) -> pl.DataFrame:
    number = pl.int_range(start, start + count, eager=True)
    frame = pl.DataFrame({"number": number, "event_time": number * 20, "ingestion_time": number * 20})
    return frame.with_columns(who=pl.format("w{}", pl.col("number") % 7))


def rung(log: Log) -> pl.DataFrame:
    if RUNG.name not in log.list_topics():
        return pl.DataFrame(schema={"name": pl.String})
    return pl.concat(
        decode(RUNG, p, log.read(RUNG.name, p, 0, end)).rows for p, end in log.end_offsets(RUNG.name).items()
    )


def killed_in_the_middle(log: Log, state: Path, on: str, rounds: int) -> int:
    """A run that is killed, with all that it started, each time that it has written something."""
    kills = 0
    for turn in range(rounds):
        log.append(STEPS.name, encode(STEPS, steps(turn * ROWS, ROWS)))
        before = rung(log).height
        child = subprocess.Popen(
            [sys.executable, str(CHILD), log.url, str(state), on],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 200
        while rung(log).height == before and time.monotonic() < deadline:
            time.sleep(0.002)
        os.killpg(child.pid, signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
    return kills


def check_every_timer_fired_once(log: Log, rows: int) -> None:
    fired = rung(log)
    clocks = [
        decode(STEPS, p, log.read(STEPS.name, p, 0, end)).rows["event_time"].max()
        for p, end in log.end_offsets(STEPS.name).items()
    ]
    due = [n for n in range(rows) if n * 20 + 700 <= min(int(str(clock)) for clock in clocks) - 100]
    assert Counter(fired["name"]) == Counter(map(str, due))
    seen = {(row["who"], row["name"]): row["steps"] for row in fired.iter_rows(named=True)}
    assert seen == {
        (f"w{n % 7}", str(n)): sum(other % 7 == n % 7 and other * 20 < n * 20 + 700 for other in range(rows))
        for n in due
    }
    assert len(due) > rows // 2


@pytest.mark.parametrize("on", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def test_kill_9_neither_loses_nor_repeats_a_timer(log: Log, tmp_path: Path, on: str) -> None:
    kills = killed_in_the_middle(log, tmp_path / "state", on, 2)
    mr.run(rings(), settings=settings(log.url, str(tmp_path / "state"), run_on=on), until_caught_up=True)
    assert kills == 2
    check_every_timer_fired_once(log, 2 * ROWS)
