"""A partition that has never held a record does not hold results back for ever."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.config import Settings
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.local import Hooks, run_local
from millrace.testing.script import On, Script
from millrace.watermarks import EMPTY_PARTITION_TIMEOUT


@dataclass
class Word:
    text: str


@dataclass
class Count:
    text: str
    count: int


WORDS = mr.Topic("input.words", Word, key="text", partitions=4)
COUNTS = mr.Topic("analytics.counts", Count, key="text")
READ = mr.read(WORDS, watermark=watermarks.bounded(0))
JOB = mr.Job("counts", READ.window(windows.fixed("1s")).group_by("text").count().write(COUNTS))
START = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Events of one key, and so of one partition of four, over three seconds."""
    log = open_log(f"embedded:{tmp_path}/log")
    log.ensure(WORDS)
    times = [START + second * 1_000 for second in range(4)]
    log.append(
        WORDS.name,
        encode(WORDS, pl.DataFrame({"text": "to", "event_time": times}), ingestion_time=START + 4_000),
    )
    yield log
    log.close()


def settings(log: Log, folder: Path) -> Settings:
    return Settings().with_options(log_url=log.url, state_dir=folder / "state", run_name="words")


def counts(log: Log) -> list[int]:
    if COUNTS.name not in list(log.list_topics()):
        return []
    records = [log.read(COUNTS.name, part, 0, end) for part, end in log.end_offsets(COUNTS.name).items()]
    return sorted(
        at for part, read in enumerate(records) for at in decode(COUNTS, part, read).rows["event_time"] - 999
    )


def test_a_run_that_ends_when_it_has_caught_up_expects_nothing_of_empty_partitions(
    log: Log, tmp_path: Path
) -> None:
    run_local([JOB], settings=settings(log, tmp_path), until_caught_up=True)
    assert counts(log) == [START, START + 1_000, START + 2_000]


def test_a_live_run_waits_for_an_empty_partition_but_not_for_ever(log: Log, tmp_path: Path) -> None:
    now, seen = START + 5_000, dict[int, int]()

    def clock() -> int:
        nonlocal now
        now += 500
        return now

    hooks = Hooks(
        clock=clock,
        stop=lambda: now > START + 60_000 or bool(counts(log)),
        report=lambda _: seen.update({now: len(counts(log))}),
    )
    run_local([JOB], settings=settings(log, tmp_path), hooks=hooks)
    assert counts(log) == [START, START + 1_000, START + 2_000]
    first = min(at for at, found in seen.items() if found)
    assert EMPTY_PARTITION_TIMEOUT <= first - (START + 5_000) < EMPTY_PARTITION_TIMEOUT + 5_000


def test_a_run_that_was_stopped_while_it_waited_gives_its_results_once_it_is_to_catch_up(
    log: Log, tmp_path: Path
) -> None:
    batches = list[object]()
    run_local(
        [JOB],
        settings=settings(log, tmp_path),
        hooks=Hooks(stop=lambda: bool(batches), report=batches.append),
    )
    assert counts(log) == []
    run_local([JOB], settings=settings(log, tmp_path), until_caught_up=True)
    assert counts(log) == [START, START + 1_000, START + 2_000]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_first_row_of_a_partition_that_was_empty_is_judged_by_the_low_watermark(on: On) -> None:
    script = Script(JOB, on=on, partitions=2, watermarks="own")
    script.clock(START)
    for second in range(4):
        script.events({"text": "to", "event_time": START + second * 1_000}, partition=0)
    assert script.panes() == []
    script.clock(START + EMPTY_PARTITION_TIMEOUT - 1)
    assert script.panes() == []
    script.clock(START + EMPTY_PARTITION_TIMEOUT)
    assert len(script.panes()) == 3
    script.events(
        {"text": "be", "event_time": START + 500}, {"text": "be", "event_time": START + 3_500}, partition=1
    )
    assert [row["event_time"] for row in script.late()] == [START + 500]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_partition_that_has_held_a_record_holds_the_watermark_back_until_idle_says_otherwise(
    on: On,
) -> None:
    script = Script(JOB, on=on, partitions=2, watermarks="own")
    script.clock(START)
    script.events({"text": "be", "event_time": START}, partition=1)
    script.events({"text": "to", "event_time": START + 9_000}, partition=0)
    script.clock(START + 100 * EMPTY_PARTITION_TIMEOUT)
    assert script.panes() == []
