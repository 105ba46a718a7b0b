"""Joins, deduplications and processors survive kill -9: what they keep comes back,
and no row is lost or shown twice.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from runners.joins_child import CITIES, ORDERS, OWED, PAYMENTS, SAME, SENT, SOON, jobs, settings

CHILD = Path(__file__).with_name("joins_child.py")
RESULTS = (SAME, SOON, SENT, OWED)
ROUND = 15_000
"""Milliseconds of events before each start."""


def append(log: Log, start: int, length: int) -> None:
    """Orders with copies, payments and moves, up to two seconds out of order."""
    dice = random.Random(start)
    rows: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in (ORDERS, PAYMENTS, CITIES)}
    for at in range(start, start + length, 50):
        user, late = f"u{dice.randrange(9)}", dice.choice([0, 0, 300, 1_900])
        times = {"event_time": max(0, at - late), "ingestion_time": at}
        rows[ORDERS.name] += [{"user": user, "number": at, **times}] * dice.choice([1, 1, 2])
        rows[PAYMENTS.name].append({"payer": f"u{dice.randrange(9)}", "amount": at, **times})
        if at % 500 == 0:
            rows[CITIES.name].append({"user": user, "city": f"c{at}", "event_time": at, "ingestion_time": at})
    for topic in (ORDERS, PAYMENTS, CITIES):
        log.append(topic.name, encode(topic, pl.DataFrame(rows[topic.name])))


def written(log: Log, topic: mr.Topic) -> pl.DataFrame:
    parts = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(parts).drop("ingestion_time", "_off")


def holds(rows: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    """What was shown and not taken back, whatever it was called on the way there."""
    changes: Counter[tuple[Any, ...]] = Counter()
    for row in rows.drop("index", "settled_index", "timing", "final").iter_rows(named=True):
        sign = 1 if row.pop("op") == "+" else -1
        changes[tuple(row.values())] += sign
    return +changes


def count(log: Log) -> int:
    return sum(
        sum(log.end_offsets(topic.name).values()) for topic in RESULTS if topic.name in log.list_topics()
    )


def filled(path: Path) -> Log:
    opened = open_log(f"embedded:{path}")
    for topic in (ORDERS, PAYMENTS, CITIES):
        opened.ensure(topic)
    return opened


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path, on: str) -> None:
    log, whole = filled(tmp_path / "log"), filled(tmp_path / "whole")
    for number in range(2):
        append(log, number * ROUND, ROUND)
        before = count(log)
        child = subprocess.Popen(
            [sys.executable, str(CHILD), log.url, str(tmp_path / "state"), on],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 200
        while count(log) == before and time.monotonic() < deadline:
            time.sleep(0.002)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert count(log) > before
    append(log, 2 * ROUND, ROUND)
    mr.run(*jobs(), settings=settings(log.url, str(tmp_path / "state"), run_on=on), until_caught_up=True)
    for number in range(3):
        append(whole, number * ROUND, ROUND)
    mr.run(
        *jobs(), settings=settings(whole.url, str(tmp_path / "other"), run_on="local"), until_caught_up=True
    )
    for topic in RESULTS:
        rows = written(log, topic)
        assert holds(rows) == holds(written(whole, topic)), topic.name
        assert rows.height > 50
        values = [name for name in rows.columns if name not in ("index", "settled_index", "timing", "final")]
        if topic is not SAME:
            assert Counter(rows.select(values).rows()) == Counter(
                written(whole, topic).select(values).rows()
            ), "shown once and for all"
