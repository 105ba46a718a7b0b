"""A run that refuses more than a few percent of its rows says so,
with the watermark that would have taken them.
"""

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


@dataclass
class Event:
    key: str


@dataclass
class Count:
    key: str
    count: int


EVENTS, OTHERS = mr.Topic("input.events", Event, key="key"), mr.Topic("input.others", Event, key="key")
COUNTS = mr.Topic("analytics.counts", Count, key="key")


def counts(delay: str) -> mr.Job:
    rows = mr.read(EVENTS, watermark=watermarks.bounded(delay)).union(
        mr.read(OTHERS, watermark=watermarks.bounded("1h"))
    )
    return mr.Job("counts", rows.window(windows.fixed("10s")).group_by("key").count().write(COUNTS))


def run(tmp_path: Path, job: mr.Job, times: list[int]) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    for topic, at in ((EVENTS, times), (OTHERS, [0])):
        log.ensure(topic)
        rows = pl.DataFrame(
            {"key": ["a"] * len(at), "event_time": at}, schema_overrides={"event_time": pl.Int64}
        )
        log.append(topic.name, encode(topic, rows, ingestion_time=10**12))
    log.close()
    chosen = Settings().with_options(log_url=log.url, state_dir=str(tmp_path / "state"))
    mr.run(job, on="local", settings=chosen, until_caught_up=True)


def test_a_run_that_refuses_most_of_its_rows_says_how_many_and_which_watermark_would_take_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = [100_000, *([20_000] * 98), 100_000]
    with caplog.at_level(logging.WARNING):
        run(tmp_path, counts("0s"), times)
    [message] = [record.getMessage() for record in caplog.records if "late" in record.getMessage()]
    assert message == (
        "job counts: 98 of 101 rows (97.0 %) were late; watermarks.bounded('1m20s') "
        "would have taken 99% of them"
    )


def test_a_run_that_refuses_few_rows_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(tmp_path, counts("0s"), [100_000] * 98 + [20_000] * 2)
    assert [record.getMessage() for record in caplog.records if "late" in record.getMessage()] == []


def test_rows_from_the_future_are_counted_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(tmp_path, counts("0s"), [100_000] * 50 + [10**13] * 50)
    [message] = [record.getMessage() for record in caplog.records if "future" in record.getMessage()]
    assert message.startswith("job counts: 50 of 101 rows (49.5 %) lie in the future")
