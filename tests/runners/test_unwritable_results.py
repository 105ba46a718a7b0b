"""Results that cannot be written, panics and `sys.exit()`: each is a failure of its job,
and the job beside it goes on.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import millrace as mr
from millrace import aggregates
from millrace.errors import JobQuarantined
from millrace.log import Log, open_log
from millrace.log.codecs import codec
from millrace.log.codecs.codec import decode, encode
from millrace.log.contract import Records
from millrace.runners.local import run_local
from runners.stopping_jobs import BAD, GOOD, alone, events, fill, good, letters, settings, written

pytestmark = pytest.mark.slow


@dataclass
class Whole:
    key: str
    total: int


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(f"embedded:{tmp_path / 'log'}")


def summed() -> mr.stream.Stream:
    return events().group_by("key").aggregate(total=aggregates.sum("number"))


def null_in_a_required_field() -> mr.Job:
    nothing = pl.when(pl.col("key") == "k3").then(None).otherwise(pl.col("total"))
    return mr.Job(
        "bad", summed().with_columns(total=nothing).write(mr.Topic("analytics.bad", Whole, key="key"))
    )


def null_key() -> mr.Job:
    nobody = pl.when(pl.col("key") == "k3").then(None).otherwise(pl.col("key"))
    return mr.Job("bad", summed().with_columns(key=nobody).write(mr.Topic("analytics.bad", Whole, key="key")))


def division_by_zero() -> mr.Job:
    return mr.Job(
        "bad",
        summed().with_columns(total=pl.col("total") // 0).write(mr.Topic("analytics.bad", Whole, key="key")),
    )


def after_the_year_9999() -> mr.Job:
    far = pl.col("event_time") + 253_402_300_799_000
    return mr.Job("bad", summed().with_columns(event_time=far).write(BAD))


def exits() -> mr.Job:
    def leave(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            sys.exit(0)
        return frame

    return mr.Job("bad", events().map_batches(leave).group_by("key").sum("number", name="total").write(BAD))


def panics() -> mr.Job:
    def panic(frame: pl.DataFrame) -> pl.DataFrame:
        frame.select(pl.lit(2**62).cast(pl.Datetime("ms"))).rows() if frame.height else None
        return frame

    return mr.Job("bad", events().map_batches(panic).group_by("key").sum("number", name="total").write(BAD))


def exits_behind_an_aggregation() -> mr.Job:
    def leave(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            sys.exit("done")
        return frame

    return mr.Job("bad", summed().map_batches(leave).write(BAD))


def overflows() -> mr.Job:
    huge = events().with_columns(number=pl.col("number") + (2**63 - 100_000))
    return mr.Job("bad", huge.group_by("key").sum("number", name="total").write(BAD))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (null_in_a_required_field, "writing analytics.bad"),
        (null_key, "writing analytics.bad"),
        (division_by_zero, "writing analytics.bad"),
        (after_the_year_9999, "years 1 to 9999"),
        (exits, r"SystemExit: 0 \(.*in map_batches"),
        (exits_behind_an_aggregation, "SystemExit: done"),
        (panics, "PanicException"),
        (overflows, "conversion from `i128` to `i64` failed"),
    ],
    ids=lambda made: getattr(made, "__name__", ""),
)
def test_a_job_whose_results_or_code_end_badly_is_stopped_alone(
    make: Callable[[], mr.Job], message: str, log: Log, tmp_path: Path
) -> None:
    fill(log, 0, 30_000)
    chosen = settings(log, tmp_path, "both", run_max_events_per_batch=10_000)
    with pytest.raises(JobQuarantined, match=message):
        run_local([make(), good()], settings=chosen, until_caught_up=True)
    assert written(log, GOOD) == alone(log, tmp_path)
    assert 0 < len(letters(log)) <= 20


@dataclass
class Visit:
    who: str
    at: datetime
    others: list[datetime]


def test_a_timestamp_out_of_range_is_a_dead_letter_that_names_the_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = mr.Topic("visits", Visit)
    stamp = pl.Series([0, 400_000_000_000_000, 0], dtype=pl.Datetime("ms", "UTC"))
    lists = pl.Series([[0], [0], [0, 400_000_000_000_000]], dtype=pl.List(pl.Datetime("ms", "UTC")))
    rows = pl.DataFrame(
        {
            "who": ["a", "b", "c"],
            "at": stamp,
            "others": lists,
            "event_time": [1, 2, 3],
            "ingestion_time": [1, 2, 3],
        }
    )
    numbers = np.arange(len(rows), dtype=np.int64)
    with monkeypatch.context() as others:  # which do not check what they write
        others.setattr(codec, "_refuse_invalid_timestamps", lambda *_: None)
        values = encode(topic, rows).values
    found = decode(topic, 0, Records(numbers, numbers, pa.nulls(len(rows), pa.binary()), values))
    assert found.rows["who"].to_list() == ["a"]
    assert found.dead["reason"].to_list() == [
        "at is outside the years 1 to 9999",
        "others is outside the years 1 to 9999",
    ]
