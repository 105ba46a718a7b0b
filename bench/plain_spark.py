"""The same question in plain Structured Streaming SQL, as a measure to be held against.

Two ways in. `from_log` reads the very log that millrace reads, decoded and with the geocell made by the same
code, in a Python data source that hands columns to Spark; its results go to the log. `from_files` is spared
all that: decoded Parquet with the geocell in it, and results go nowhere. Both keep their state in memory,
which is faster here than RocksDB, and show each result once, when the watermark says so. With a delay of a
second they drop what comes later, where millrace corrects results for a minute; with one of 61 seconds their
answers are the same as millrace's last ones, and come a minute later than its first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from millrace.runners.spark.session import FIXED_OPTIONS
from millrace.runners.spark.source import LogStreamReader, ReadTask, SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "vehicle_id string, geocell long, event_time timestamp"
_ARROW = pa.schema(
    [("vehicle_id", pa.string()), ("geocell", pa.int64()), ("event_time", pa.timestamp("us", "UTC"))]
)
_USEFUL_SETTINGS = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.session.timeZone",
    "spark.python.daemon.module",
    "spark.python.unix.domain.socket.enabled",
    "spark.executorEnv.POLARS_MAX_THREADS",
)
"""Those of millrace's settings that make plain queries faster as well. The JVM has Spark's own options."""

Events = Callable[["SparkSession"], "DataFrame"]
Deliver = Callable[[pl.DataFrame, int], None]
"""Called with the results of a batch and its number."""


def count_vehicles(events: DataFrame, delay: str) -> DataFrame:
    """Counts the vehicles per cell and window, each in its latest cell: two chained aggregations."""
    from pyspark.sql import functions as f

    latest = (
        events.withWatermark("event_time", delay)
        .groupBy(f.window("event_time", "30 seconds", "5 seconds"), "vehicle_id")
        .agg(f.max_by("geocell", "event_time").alias("geocell"))
    )
    counted = latest.groupBy("window", "geocell").agg(f.count("*").alias("count"))
    return counted.select(f.unix_millis("window.end").alias("window_end"), "geocell", "count")


def from_files(folder: Path) -> Events:
    """Reads a folder of Parquet files, two per batch, one for each core."""
    return lambda spark: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(folder))


def from_log(source_spec: SourceSpec, columns: Callable[[pl.DataFrame], pl.DataFrame]) -> Events:
    """Reads the log in the batches and tasks of millrace.
    `columns` turns decoded rows into Spark's columns, in the worker.
    """

    class PlainReader(LogStreamReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from millrace.runners.batches import read_partition
            from millrace.runners.spark.open_logs import get_log

            assert isinstance(partition, ReadTask)
            plan = self._spec.plan.unpack()
            topics = {topic.name: topic for topic in plan.topics}
            for topic, number, start, end in partition.ranges:
                rows = read_partition(
                    get_log(self._spec.log),
                    topics[topic],
                    number,
                    start,
                    end,
                    columns=plan.needed_columns[topic],
                ).rows
                if rows is not None:
                    yield from columns(rows).to_arrow().cast(_ARROW).to_batches()

    class PlainSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "plain_log"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: StructType) -> PlainReader:  # noqa: ARG002, N802 - Spark's interface
            return PlainReader(source_spec)

    def load(spark: SparkSession) -> DataFrame:
        spark.dataSource.register(PlainSource)
        return spark.readStream.format("plain_log").load()

    return load


def open_plain_session(scratch: Path) -> SparkSession:
    """Spark's defaults, with those of millrace's settings that make SQL faster."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = len(os.sched_getaffinity(0))
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", cores)
    for key, value in {
        **{key: FIXED_OPTIONS[key] for key in _USEFUL_SETTINGS},
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch),
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run_query(
    events: Events,
    *,
    state: Path,
    delay: str = "1 second",
    deliver: Deliver | None,
    report: Callable[[int], None],
    stop: Callable[[], bool],
) -> None:
    """Runs the query and reports the events of each batch. Without `deliver`, results are dropped."""
    spark = open_plain_session(state)
    writer = (
        count_vehicles(events(spark), delay)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(state / "plain"))
    )
    writer = writer.format("noop") if deliver is None else writer.foreachBatch(_deliver_batch(deliver))
    query = writer.start()
    last_batch = -1
    while not stop() and query.isActive:
        time.sleep(0.01)
        for progress in query.recentProgress:
            if progress.batchId > last_batch and progress.numInputRows:
                last_batch = progress.batchId
                report(progress.numInputRows)
    query.stop()


def _deliver_batch(deliver: Deliver) -> Callable[[DataFrame, int], None]:
    def batch(frame: DataFrame, number: int) -> None:
        result = pl.from_arrow(frame.toArrow())
        assert isinstance(result, pl.DataFrame)
        deliver(result, number)

    return batch
