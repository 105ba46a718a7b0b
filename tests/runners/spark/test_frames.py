"""DataFrames at either end of a job: files in, files out, each batch once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import millrace as mr
from millrace.config import Settings
from millrace.errors import DefinitionError
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.runners.local import run_local
from runners.local_child import READINGS, totals
from runners.test_local import last_words, readings, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Of its own: others have a topic of the same name."""
    log = open_log(f"embedded:{tmp_path}/own")
    yield log
    log.close()


def written(folder: Path, name: str, start: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    made = (
        readings(start, count)
        .drop("ingestion_time")
        .with_columns(at=pl.from_epoch("event_time", time_unit="ms").dt.replace_time_zone("UTC"))
    )
    made.drop("event_time").write_parquet(folder / name)


OWN = dataclasses.replace(READINGS, name="frames.readings")


def held(log: Log, topic: mr.Topic = READINGS) -> list[tuple[Any, ...]]:
    ends = log.end_offsets(topic.name).items()
    rows = pl.concat([decode(topic, p, log.read(topic.name, p, 0, end)).rows for p, end in ends])
    return sorted(rows.select("event_time", "sensor", "value").rows())


def test_files_in_and_files_out(spark: SparkSession, log: Log, settings: Settings, tmp_path: Path) -> None:
    from millrace.runners.spark.dataframes import from_dataframe

    written(tmp_path / "in", "one.parquet", 0, 300)
    frame = spark.read.parquet(str(tmp_path / "in"))
    with pytest.raises(DefinitionError, match="needs 'when'"):
        from_dataframe(frame, READINGS, time="when", log=log.url)
    assert from_dataframe(frame, READINGS, time="at", log=log.url) is None
    assert held(log) == sorted(readings(0, 300).select("event_time", "sensor", "value").rows())
    run_local([totals()], settings=settings, until_caught_up=True)
    results = totals().to_dataframe(spark, log=log.url)
    results.write.parquet(str(tmp_path / "out"))
    back = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert last_words(back) == last_words(shown(log))
    assert results.filter("op = '+'").count() == len(shown(log).filter(pl.col("op") == "+"))


def test_a_stream_of_files_is_in_the_log_once_over_restarts(
    spark: SparkSession, log: Log, settings: Settings, tmp_path: Path
) -> None:
    from millrace.runners.spark.dataframes import from_dataframe

    folder, out = tmp_path / "in", tmp_path / "out"
    for n in range(2):
        written(folder, f"{n}.parquet", 300 * n, 300)
        frame = spark.readStream.schema("sensor string, value bigint, at timestamp").parquet(str(folder))
        with pytest.raises(DefinitionError, match="in another file"):
            from_dataframe(frame, READINGS, time="at", log=log.url, checkpoint=str(tmp_path / "refused"))
        query = from_dataframe(
            frame, OWN, time="at", log=log.url, checkpoint=str(tmp_path / "checkpoint"), available_now=True
        )
        assert query is not None
        query.awaitTermination()
        assert held(log, OWN) == sorted(
            readings(0, 300 * (n + 1)).select("event_time", "sensor", "value").rows()
        )
        from_dataframe(spark.read.parquet(str(folder / f"{n}.parquet")), READINGS, time="at", log=log.url)
        run_local([totals()], settings=settings.with_options(log_url=log.url), until_caught_up=True)
        stream = totals().to_dataframe(spark, log=log.url, streaming=True)
        writing = (
            stream.writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "out-checkpoint"))
        )
        writing.trigger(availableNow=True).start().awaitTermination()
        assert len(spark.read.parquet(str(out)).collect()) == len(shown(log))
