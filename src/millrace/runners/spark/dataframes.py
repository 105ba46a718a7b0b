"""Spark's DataFrames as inputs and outputs: rows become events of a topic, and results of a job become a
DataFrame.

So a job can read and write all that Structured Streaming can (files, Kafka, JDBC, Delta).
"""

from __future__ import annotations

import hashlib
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from millrace import panes, timestamps
from millrace.config import load
from millrace.errors import DefinitionError, InputError
from millrace.log import open_log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.spark.serialized_plan import pickle_by_value
from millrace.topics import Topic
from millrace.values.calls import require_type, short_repr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millrace.stream import Job


def from_dataframe(
    frame: DataFrame,
    topic: Topic,
    *,
    time: str,
    log: str | None = None,
    checkpoint: str | None = None,
    available_now: bool = False,
) -> StreamingQuery | None:
    """Appends the rows of a DataFrame to a topic; `time` is the column of event time: a timestamp, whole
    milliseconds, or ISO 8601 text.

    A streaming one needs a `checkpoint` folder, and returns the query that goes on; each of its batches is in
    the log exactly once, and with `available_now` it stops when it has read what there is. Rows come to the
    driver, a batch at a time, and from there to the log.
    """
    _check_columns(frame, topic, time)
    log = log or load().log.url
    with_time = frame.select(*dict.fromkeys([*topic.schema, time]))
    target_log = open_log(log)
    target_log.ensure(topic)
    if not frame.isStreaming:
        target_log.append(topic.name, encode(topic, _to_events(with_time.toArrow(), topic, time)))
        target_log.close()
        return None
    if checkpoint is None:
        raise DefinitionError(
            "from_dataframe: a streaming DataFrame needs checkpoint='FOLDER', or it would read everything "
            "again after a stop"
        )
    if topic.name.startswith("input.") and not log.startswith("kafka"):
        raise DefinitionError(
            f"from_dataframe: the embedded log keeps {topic.name} in another file than its commits; name "
            "the topic otherwise than input.*"
        )
    writer = target_log.writer(f"dataframe.{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}")

    def commit(batch: DataFrame, number: int) -> None:
        if number > writer.last_marker:
            events = _to_events(batch.toArrow(), topic, time)
            writer.commit(number, {topic.name: encode(topic, events)} if len(events) else {})

    query = with_time.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint)
    return (query.trigger(availableNow=True) if available_now else query).start()


def _check_columns(frame: DataFrame, topic: Topic, time: str) -> None:
    require_type("from_dataframe", topic, Topic, "a topic; say Topic('name', Type)")
    if not hasattr(frame, "isStreaming"):
        raise DefinitionError(f"from_dataframe: {short_repr(frame)} is not a DataFrame of Spark")
    missing = [name for name in (*topic.schema, time) if name not in frame.columns]
    if missing:
        raise DefinitionError(
            f"from_dataframe: {topic.name} needs {missing[0]!r}; the DataFrame has {', '.join(frame.columns)}"
        )


def _to_events(table: pa.Table, topic: Topic, time: str) -> pl.DataFrame:
    """Rows as events of the topic, ingested now."""
    frame = pl.DataFrame(pl.from_arrow(table))
    times = timestamps.to_millis(frame[time]).alias("event_time")
    if nulls := times.null_count():
        raise InputError(
            f"from_dataframe: {nulls} rows have no {time!r}, so they have no place in time; "
            "filter them out or fill it"
        )
    now = pl.lit(clock.time_ns() // 1_000_000, pl.Int64)
    fields = [timestamps.fit_column(frame[name], dtype) for name, dtype in topic.schema.items()]
    return pl.DataFrame([*fields, times]).with_columns(now.alias("ingestion_time"))


def to_dataframe(
    job: Job,
    spark: SparkSession,
    *,
    log: str | None = None,
    topic: str | None = None,
    streaming: bool = False,
) -> DataFrame:
    """The results of a job, as far as the log holds them: the fields of their type, `event_time`, and the
    columns of panes.

    A streaming one goes on with the results that come. The job itself runs by itself; this follows the topic
    that it writes.
    """
    topics = {output.topic.name: output.topic for output in job.outputs}
    if topic is None and len(topics) > 1:
        raise DefinitionError(f"job {job.name!r} writes {', '.join(topics)}; say topic=")
    chosen = next(iter(topics.values())) if topic is None else topics[topic]
    source = _make_source(chosen, log or load().log.url)
    spark.dataSource.register(source)
    return (spark.readStream if streaming else spark.read).format(source.name()).load()


@dataclass
class OffsetRange(InputPartition):
    """A range of one partition of the log."""

    partition: int
    start: int
    end: int


def _make_source(topic: Topic, log: str) -> type[DataSource]:
    columns = pl.Schema({**topic.schema, "event_time": pl.Int64(), **panes.COLUMNS})
    schema = from_arrow_schema(_to_spark_types(columns.to_frame().to_arrow()).schema)
    pickled_topic, name = (
        pickle_by_value(topic),
        f"millrace_{hashlib.sha256(f'{log} {topic.name}'.encode()).hexdigest()[:16]}",
    )

    class Results(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return BatchResultReader(pickled_topic, log, schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's interface
            return StreamResultReader(pickled_topic, log, schema)

    return Results


class _ResultReader:
    """Reads results in a task; the base of both readers."""

    def __init__(self, pickled_topic: bytes, log: str, schema: StructType) -> None:
        self._pickled_topic, self._log, self._schema = pickled_topic, log, schema

    def rows(self, offsets: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The results of a range, decoded where it is read."""
        import pickle

        topic: Topic = pickle.loads(self._pickled_topic)  # noqa: S301 - our own bytes, sent by our own driver
        records = open_log(self._log, create=False).read(
            topic.name, offsets.partition, offsets.start, offsets.end
        )
        frame = decode(topic, offsets.partition, records, panes=True).rows.select(
            [field.name for field in self._schema.fields]
        )
        yield from _to_spark_types(frame.to_arrow()).cast(to_arrow_schema(self._schema)).to_batches()

    def ends(self) -> dict[str, int]:
        """The end offsets of the topic."""
        import pickle

        topic = pickle.loads(self._pickled_topic)  # noqa: S301 - our own bytes
        return {str(p): end for p, end in open_log(self._log, create=False).end_offsets(topic.name).items()}


class BatchResultReader(_ResultReader, DataSourceReader):
    """All results that the log holds."""

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each partition."""
        return [OffsetRange(int(p), 0, end) for p, end in self.ends().items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The results of one partition."""
        assert isinstance(partition, OffsetRange)
        return self.rows(partition)


class StreamResultReader(_ResultReader, DataSourceStreamReader):
    """All results, and those that follow."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """The beginning of each partition."""
        return dict.fromkeys(self.ends(), 0)

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - Spark's interface, without its limits
        """The present end of each partition."""
        return self.ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets."""
        return [
            OffsetRange(int(p), start.get(p, 0), stop) for p, stop in end.items() if stop > start.get(p, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The results of one range."""
        assert isinstance(partition, OffsetRange)
        return self.rows(partition)


def _to_spark_types(table: pa.Table) -> pa.Table:
    """Casts to types that Spark has: times in microseconds, text and lists with 32-bit offsets."""
    return table.cast(pa.schema([pa.field(field.name, _spark_type(field.type)) for field in table.schema]))


def _spark_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.timestamp("us", dtype.tz)
    if pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype) or pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_large_list(dtype) or pa.types.is_list(dtype):
        return pa.list_(_spark_type(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(f.name, _spark_type(f.type)) for f in dtype])
    return dtype
