"""The log as a Spark source: it reads, decodes and routes in the worker, so that events never cross the JVM
one by one.

Offsets say where each partition stands, and what time it was when the batch was cut, so that a repeated batch
sees the same time: `{"topics": {"input.positions": {"0": 17, "1": 4}}, "clock": 1700000000000}`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from millrace.runners.batch_clock import BatchClock, wall_clock
from millrace.runners.spark.open_logs import LogLocation
from millrace.runners.spark.serialized_plan import SerializedPlan

if (
    TYPE_CHECKING
):  # Spark unpacks a source in several processes that only plan; what reads is loaded where it reads
    from millrace.engine.exchange import Packet
    from millrace.runners.batches import Offsets, OnDataLoss, TopicEnds, WatermarkAlignment
    from millrace.runners.bounded import BoundedRun

PACKET_SCHEMA = StructType([StructField("slot", IntegerType()), StructField("packet", BinaryType())])
"""The rows that Spark shuffles: the label of a slot, and a packet for it."""
_ARROW_SCHEMA = pa.schema([("slot", pa.int32()), ("packet", pa.binary())])

ReadRange = tuple[str, int, int, int]
"""A topic, a partition, and the offsets `[start, end)`."""
EncodedPacket: TypeAlias = tuple[int, bytes]
"""A slot, and the body of its packet as bytes: what Spark shuffles, and what is read ahead."""
_TopicOffsets: TypeAlias = dict[str, dict[int, int]]
_PlannedBatch: TypeAlias = tuple[_TopicOffsets, _TopicOffsets]
"""The begin and the end of the next batch, which is read ahead."""


@dataclass(frozen=True)
class SourceSpec:
    """The configuration of a source, which is sent to the workers."""

    plan: SerializedPlan
    topics: tuple[str, ...]
    log: LogLocation
    labels: tuple[int, ...]
    max_events: int | None
    tick_ms: int
    """At least this often a batch comes, in milliseconds, while anything waits for the clock."""
    has_ticks: bool
    """Whether a trigger, a timer or idleness waits for the clock."""
    max_tasks: int
    watermark_file: str | None = None
    """The file with the watermarks of partitions."""
    max_ahead_ms: int = 0
    """How far ahead of the others a partition may be, in milliseconds."""
    on_data_loss: OnDataLoss = "fail"
    """What to do where the log no longer has what comes next."""
    start_offsets: str | None = None
    """The offsets, as JSON, at which the first batch begins; None: the beginning of the log."""
    rows_per_task: int = 20_000
    """Below this a second task costs more than it saves."""
    query_name: str | None = None
    """The id of this query, under which its tasks are read ahead; None: nothing is read ahead."""
    bounded: bytes | None = None
    """What is read where the run ends by itself: a `BoundedRun`, pickled, as few processes need it."""
    one_task: bool = False
    """Whether one task of Spark's reads all shares, one after the other, and works on them:
    read-ahead processes help it.
    """
    followed_topics: frozenset[str] = frozenset()
    """The topics of which a job follows the watermark of the writers."""


@dataclass
class ReadTask(InputPartition):
    """The partitions that one task reads, and the batch's clock."""

    now: int
    ranges: list[ReadRange] = field(default_factory=list)
    following: list[ReadTask] = field(default_factory=list)
    """Tasks that may be read ahead meanwhile: the rest of the batch, and the next batch."""
    bounded: bool = False
    """Whether the run ends when it has caught up, so that empty partitions do not hold the watermark back."""
    watermarks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """How far the writers of followed topics vouch for them at the end of the batch."""
    ended: frozenset[str] = frozenset()
    """The topics of which no row follows."""

    @property
    def rows(self) -> int:
        """The number of records of the task."""
        return sum(end - start for _, _, start, end in self.ranges)


def make_source(spec: SourceSpec, name: str) -> type[DataSource]:
    """A data source class for one query; Spark pickles it by value, with what it holds."""

    class LogSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return PACKET_SCHEMA

        def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: ARG002, N802 - Spark's interface
            return LogStreamReader(spec)

    return LogSource


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cuts batches on the driver, and reads them in the workers."""

    def __init__(self, spec: SourceSpec, *, clock: Callable[[], int] = wall_clock) -> None:
        self._spec = spec
        self._clock = BatchClock(clock)
        self._started_at: int | None = None
        self._planned_batch: _PlannedBatch | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """The oldest record of every partition, or the offsets of the restored state."""
        from millrace.runners.batches import Offsets, resolve_offsets
        from millrace.runners.spark.open_logs import get_log

        if self._spec.start_offsets is not None:
            return _to_spark_offsets(Offsets.from_json(self._spec.start_offsets))
        return _to_spark_offsets(resolve_offsets(get_log(self._spec.log), Offsets({}, 0), self._spec.topics))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's interface
        """The most events of a batch, as set by the user."""
        return ReadMaxRows(self._spec.max_events) if self._spec.max_events else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's interface
        """There is nothing to prepare: where such a query ends is part of its settings (`bounded`)."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """The end of the next batch; `start` where nothing is new and no tick is due, so that no empty batch
        runs.

        Spark runs a first batch in any case. It is always due, so that it has a clock, and the partitions are
        known from then on.
        """
        from millrace.runners import batches as feed
        from millrace.runners.spark.open_logs import get_log
        from millrace.runners.upstream import follow_writers

        begin, bounded = _parse_offsets(start), self._load_bounds()
        if bounded is not None and self._started_at is None:
            begin = bounded.begin(begin)
        max_events = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        log = get_log(self._spec.log)
        ends = _FrozenEnds.of(log if bounded is None else bounded.ends(log), begin.topics)
        alignment = self._read_alignment()
        end = feed.plan_batch_end(
            ends,
            begin,
            now=self._clock.after(begin.clock),
            limit=max_events,
            alignment=alignment,
            on_data_loss=self._spec.on_data_loss,
            bounded=bounded is not None,
        )
        end = self._keep_planned_end(begin, end, ends)
        end = follow_writers(get_log(self._spec.log), self._spec.followed_topics, begin, end)
        self._planned_batch = (
            None
            if max_events is None or self._spec.query_name is None
            else self._plan_following_batch(ends, end, max_events, alignment)
        )
        is_new = end.topics != begin.topics or end.watermarks != begin.watermarks
        if is_new or end.recreated_topics(begin) or self._is_due(begin, end):
            return _to_spark_offsets(end)
        ending = None if bounded is None else bounded.plan_ending(begin, end.clock)
        return start if ending is None else _to_spark_offsets(ending)

    def _load_bounds(self) -> BoundedRun | None:
        if self._spec.bounded is None:
            return None
        bounded: BoundedRun = pickle.loads(self._spec.bounded)  # noqa: S301 - our own bytes, from the driver
        return bounded

    def _is_due(self, begin: Offsets, end: Offsets) -> bool:
        """Whether a batch is due although nothing is new."""
        from millrace.runners import batches as feed
        from millrace.runners.batches import Offsets

        if self._started_at is None:
            self._started_at = end.clock
        if begin.has_ended:
            return False
        if begin.clock == 0 or (
            self._spec.start_offsets is not None and begin == Offsets.from_json(self._spec.start_offsets)
        ):
            return True
        if self._spec.bounded is not None:
            return feed.has_to_close_empty(begin, end)
        waits = self._spec.has_ticks or feed.is_waiting_for_empty(end, self._started_at, self._spec.tick_ms)
        return waits and end.clock - begin.clock >= self._spec.tick_ms

    def _keep_planned_end(self, begin: Offsets, end: Offsets, ends: _FrozenEnds) -> Offsets:
        """The planned end of the batch that begins here, which is being read ahead.
        `end` if there is none, or other partitions advance.
        """
        from millrace.runners.batches import Offsets

        if (
            self._planned_batch is None
            or self._planned_batch[0] != begin.topics
            or end.recreated_topics(begin)
        ):
            return end
        planned = replace(end, topics=self._planned_batch[1])
        return (
            planned
            if planned.moved_partitions(begin) == end.moved_partitions(begin)
            and planned.is_reached_by(Offsets(ends.offsets, 0))
            else end
        )

    def _plan_following_batch(
        self, ends: _FrozenEnds, end: Offsets, max_events: int, alignment: WatermarkAlignment | None
    ) -> _PlannedBatch | None:
        """The range of the batch after this one, if there are enough events for a full batch."""
        from millrace.runners import batches as feed

        following = feed.plan_batch_end(
            ends,
            end,
            now=end.clock,
            limit=max_events,
            alignment=alignment,
            on_data_loss=self._spec.on_data_loss,
        )
        rows = sum(
            stop - end.topics[topic][p]
            for topic, partitions in following.topics.items()
            for p, stop in partitions.items()
        )
        return (end.topics, following.topics) if rows >= max_events else None

    def _read_alignment(self) -> WatermarkAlignment | None:
        from millrace.runners.spark.watermark_file import read_alignment

        return (
            read_alignment(Path(self._spec.watermark_file), self._spec.max_ahead_ms)
            if self._spec.watermark_file
            else None
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ReadTask]:
        """Divides all partitions over a few tasks, also those without new events:
        that they are silent counts for idleness.
        """
        if start == end:
            return []
        begin, stop = _parse_offsets(start), _parse_offsets(end)
        tasks = self._make_read_tasks(begin, stop)
        if self._spec.one_task:
            tasks[0].following += tasks[1:]
        if self._planned_batch is not None and self._planned_batch[0] == stop.topics:
            tasks[0].following += self._make_read_tasks(stop, replace(stop, topics=self._planned_batch[1]))
        return tasks

    def _make_read_tasks(self, begin: Offsets, stop: Offsets) -> list[ReadTask]:
        from millrace.runners import batches as feed
        from millrace.runners.spark.open_logs import get_log

        ranges = feed.plan_ranges(get_log(self._spec.log), begin, stop, self._spec.on_data_loss)
        tasks = deal_ranges(
            ranges, stop.clock, max_tasks=self._spec.max_tasks, rows_per_task=self._spec.rows_per_task
        )
        for task in tasks:
            task.bounded, task.ended, task.watermarks = stop.bounded, stop.ended, stop.watermarks
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads a task in a worker, or takes its packets if it was read ahead."""
        from millrace.engine.exchange import Body
        from millrace.runners.spark import read_ahead as ahead

        assert isinstance(partition, ReadTask)
        found = ahead.take_packets(self._spec, partition)
        for task in partition.following:
            ahead.request_read(self._spec, task)
        if found is None:
            found = read_packets(self._spec, partition)
        else:  # packets that were read ahead have the clock of the batch before
            clock = Body(partition.now).encode()
            found += [(slot, clock) for slot in range(len(self._spec.labels))]
        yield to_record_batch(found, self._spec.labels)


def read_packets(spec: SourceSpec, task: ReadTask) -> list[EncodedPacket]:
    """Reads a task, and routes its rows to all slots."""
    from millrace.engine.source import route_batch
    from millrace.runners.batches import read_partition
    from millrace.runners.spark.open_logs import get_log
    from millrace.runners.upstream import with_watermarks

    plan, log = spec.plan.unpack(), get_log(spec.log)
    topics = {topic.name: topic for topic in plan.topics}
    partition_batches = [
        read_partition(
            log,
            topics[topic],
            number,
            start,
            end,
            on_data_loss=spec.on_data_loss,
            columns=plan.needed_columns[topic],
        )
        for topic, number, start, end in task.ranges
    ]
    partition_batches = with_watermarks(partition_batches, task.watermarks)
    return encode_packets(
        route_batch(plan, partition_batches, task.now, ended=task.ended, bounded=task.bounded)
    )


def encode_packets(packets: Sequence[Packet]) -> list[EncodedPacket]:
    """Packets as bytes, ready to leave the process."""
    return [(packet.slot, packet.body.encode()) for packet in packets]


@dataclass(frozen=True)
class _FrozenEnds:
    """The ends of a log at one moment."""

    offsets: dict[str, dict[int, int]]
    ids: dict[str, str | None]

    @classmethod
    def of(cls, log: TopicEnds, topics: Iterable[str]) -> _FrozenEnds:
        return cls(
            {topic: log.end_offsets(topic) for topic in topics},
            {topic: log.identity(topic) for topic in topics},
        )

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self.offsets[topic]

    def identity(self, topic: str) -> str | None:
        return self.ids[topic]


def deal_ranges(
    ranges: Sequence[ReadRange], now: int, *, max_tasks: int, rows_per_task: int
) -> list[ReadTask]:
    """Divides ranges over a few tasks of about equal size. A partition is not divided."""
    rows, busy_partitions = (
        sum(end - start for *_, start, end in ranges),
        sum(end > start for *_, start, end in ranges),
    )
    tasks = [ReadTask(now) for _ in range(max(1, min(max_tasks, busy_partitions, rows // rows_per_task)))]
    for each in sorted(ranges, key=lambda each: each[2] - each[3]):
        min(tasks, key=lambda task: task.rows).ranges.append(each)
    for task in tasks:
        task.ranges.sort()
    return tasks


def to_record_batch(packets: Sequence[EncodedPacket], labels: tuple[int, ...]) -> pa.RecordBatch:
    """Packets as Spark's rows."""
    slots = pa.array([labels[slot] for slot, _ in packets], pa.int32())
    return pa.RecordBatch.from_arrays(
        [slots, pa.array([body for _, body in packets], pa.binary())], schema=_ARROW_SCHEMA
    )


def _parse_offsets(stored: dict[str, Any]) -> Offsets:
    from millrace.runners.batches import Offsets

    return Offsets.from_json(json.dumps(stored))


def _to_spark_offsets(offsets: Offsets) -> dict[str, Any]:
    """The offsets as the dictionary that Spark stores."""
    return cast(dict[str, Any], json.loads(offsets.to_json()))
