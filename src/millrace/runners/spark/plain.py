"""The same question in plain Structured Streaming SQL, as a measure to be held against.

It is spared what millrace does besides: the events come from Parquet, decoded, with the geocell already computed (Spark has no H3),
results are thrown away, and what is later than the watermark is dropped instead of correcting results for a minute.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.runners.spark.session import FIXED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "vehicle_id string, geocell long, event_time timestamp"
_KEPT = ("checkpointFileManagerClass",)
"""Of our settings, those that help plain queries too. Its state is kept by Spark's default provider, in memory, which is faster here than
RocksDB; its JVM has Spark's own options."""


def distribution(events: DataFrame) -> DataFrame:
    """The latest cell of each vehicle in each window, counted per cell: two aggregations chained, as SQL would have it."""
    from pyspark.sql import functions as f

    latest = (
        events.withWatermark("event_time", "1 second")
        .groupBy(f.window("event_time", "30 seconds", "5 seconds"), "vehicle_id")
        .agg(f.max_by("geocell", "event_time").alias("geocell"))
    )
    return latest.groupBy("window", "geocell").count()


def run(files: Path, *, state: Path, report: Callable[[int], None], stop: Callable[[], bool]) -> None:
    """Reads a folder of Parquet files, two of them a batch so that both cores are busy, and reports each batch's events."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = len(os.sched_getaffinity(0))
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.sql.shuffle.partitions", cores)
    ours = {key: value for key, value in FIXED.items() if any(kept in key for kept in _KEPT)}
    for key, value in {
        **ours,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(state),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(files))

    query = distribution(events).writeStream.outputMode("append").option("checkpointLocation", str(state / "plain")).format("noop").start()
    seen = -1
    while not stop() and query.isActive:
        time.sleep(0.01)
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                report(progress.numInputRows)
    query.stop()
