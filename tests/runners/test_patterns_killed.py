"""Matches survive kill -9: rows and partial matches kept between batches come
back, and none is shown twice.
"""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bench import events
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.runners.local import run_local
from millrace.runners.replay import replay
from millrace.transit import EMERGENCY_STOPS, POSITIONS
from runners.patterns_child import SLOWINGS, jobs, settings

CHILD = Path(__file__).with_name("patterns_child.py")
COLUMNS = ("vehicle_id", "window_start", "window_end")


def positions() -> pl.DataFrame:
    """Some minutes of a fleet, and long after them a report of every vehicle,
    which moves the watermark past all of it.
    """
    made = events.make_positions(120, vehicles=60)
    later = made.unique("vehicle_id", keep="last", maintain_order=True).with_columns(
        pl.col("event_time", "ingestion_time") + 1_000_000, speed=pl.lit(5.0), acceleration=pl.lit(0.0)
    )
    return pl.concat([made, later])


def written(log: Log, topic: Any) -> Counter[tuple[Any, ...]]:
    found = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return Counter(pl.concat(found).select(COLUMNS).rows())


def wait_until(condition: Callable[[], bool], limit: float = 240) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def ends(log: Log) -> int:
    return sum(log.end_offsets(SLOWINGS.name).values()) if SLOWINGS.name in log.list_topics() else 0


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_and_doubles_no_match(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    made, state = positions(), str(tmp_path / "state")
    events.fill_log(log, made, rows=2_000)
    for kill in range(2):
        before = ends(log)
        with subprocess.Popen(
            [sys.executable, str(CHILD), log.url, state], stderr=subprocess.DEVNULL
        ) as child:
            wait_until(lambda before=before: ends(log) > before)  # type: ignore[misc]  # the count of this round
            time.sleep(0.01 * kill)
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    run_local(jobs(), settings=settings(log.url, state), until_caught_up=True)
    for job, topic in zip(jobs(), (EMERGENCY_STOPS, SLOWINGS), strict=True):
        wanted = replay(job, POSITIONS, log=log.url, batch=1_000)
        assert written(log, topic) == Counter(wanted.select(COLUMNS).rows())
        assert wanted.height > 4
    log.close()
