"""The log as a Spark source: it reads, decodes and routes in the worker, so that events never cross the JVM one by one.

Offsets say where each partition stands, and what time it was when the batch was cut, so that a repeated batch sees the same time:
`{"topics": {"input.positions": {"0": 17, "1": 4}}, "clock": 1700000000000}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from millrace.runners.spark.open_logs import LogPlace
from millrace.runners.spark.serialized_plan import Shipped

if (
    TYPE_CHECKING
):  # Spark unpacks a source in several processes that only plan; what reads is loaded where it reads
    from millrace.engine.exchange import Packet
    from millrace.runners.batches import Ends, Lost, Offsets, Pace

PACKETS = StructType([StructField("slot", IntegerType()), StructField("packet", BinaryType())])
"""What Spark shuffles: the label of a slot and a packet for it."""
_ARROW = pa.schema([("slot", pa.int32()), ("packet", pa.binary())])

Range = tuple[str, int, int, int]
"""A topic, a partition, and the offsets `[start, end)`."""
_Topics: TypeAlias = dict[str, dict[int, int]]
_Promise: TypeAlias = tuple[_Topics, _Topics]
"""Where a batch begins that is not due yet, and where it will end, so that it can be read ahead."""


@dataclass(frozen=True)
class Feed:
    """What a source needs to know; it travels to the workers."""

    plan: Shipped
    topics: tuple[str, ...]
    log: LogPlace
    labels: tuple[int, ...]
    limit: int | None
    tick: int
    """At least this often a batch comes, in milliseconds, while anything waits for the clock."""
    ticks: bool
    """Whether a trigger, a timer or idleness waits for the clock."""
    tasks: int
    pace: str | None = None
    """The file in which is said how far partitions have come."""
    ahead: int = 0
    """How far ahead of the others a partition may be, in milliseconds."""
    lost: Lost = "fail"
    """What to do where the log no longer has what comes next."""
    start: str | None = None
    """The offsets, as JSON, at which the first batch begins; None: the beginning of the log."""
    rows_per_task: int = 20_000
    """Below this a second task costs more than it saves."""
    name: str | None = None
    """Of this query, under which its shares are read ahead; null: they are not."""
    one_task: bool = False
    """Whether one task of Spark's reads all shares, one after the other, and works on them: whoever reads ahead helps it."""


@dataclass
class Share(InputPartition):
    """What one task reads: partitions whole, and the batch's clock."""

    now: int
    ranges: list[Range] = field(default_factory=list)
    following: list[Share] = field(default_factory=list)
    """What may be read ahead meanwhile: the rest of the batch, and the one after it."""
    bounded: bool = False
    """Whether the run ends when it has caught up, so that nothing is expected of empty partitions."""

    @property
    def rows(self) -> int:
        """How many records the task will read."""
        return sum(end - start for _, _, start, end in self.ranges)


def source(feed: Feed, name: str) -> type[DataSource]:
    """A data source class for one query; Spark pickles it by value, with what it holds."""

    class LogSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return PACKETS

        def streamReader(self, schema: StructType) -> Reader:  # noqa: ARG002, N802 - Spark's interface
            return Reader(feed)

    return LogSource


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cuts batches on the driver, and reads them in the workers."""

    def __init__(self, feed: Feed, *, clock: Callable[[], int] = wall_clock) -> None:
        self._feed = feed
        self._clock = BatchClock(clock)
        self._target: _Frozen | None = None
        self._since: int | None = None
        self._promise: _Promise | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """The oldest record of every partition there is, or where the state came from that the first batch begins with."""
        from millrace.runners.batches import Offsets, joined
        from millrace.runners.spark.open_logs import opened

        if self._feed.start is not None:
            return _said(Offsets.from_json(self._feed.start))
        return _said(joined(opened(self._feed.log), Offsets({}, 0), self._feed.topics))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's interface
        """The most events of a batch, as set by the user."""
        return ReadMaxRows(self._feed.limit) if self._feed.limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's interface
        """From now on, what is in the log at this moment is all there is."""
        from millrace.runners.spark.open_logs import opened

        self._target = _Frozen.of(opened(self._feed.log), self._feed.topics)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        """Where the next batch ends; `start` itself where nothing is new and no tick is due, so that no empty batch runs.

        Spark runs a first batch in any case; so that it has a clock, and partitions are known from then on, it is always due.
        """
        from millrace.runners import batches as feed
        from millrace.runners.spark.open_logs import opened

        begun = _offsets(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        log = opened(self._feed.log) if self._target is None else self._target
        ends, pace = _Frozen.of(log, begun.topics), self._pace()
        bounded = self._target is not None
        end = feed.advance(
            ends,
            begun,
            now=self._clock.after(begun.clock),
            limit=most,
            pace=pace,
            lost=self._feed.lost,
            bounded=bounded,
        )
        end = self._kept(begun, end, ends)
        self._promise = (
            None if most is None or self._feed.name is None else self._promised(ends, end, most, pace)
        )
        return (
            start
            if end.topics == begun.topics and not end.anew(begun) and not self._is_due(begun, end)
            else _said(end)
        )

    def _is_due(self, begun: Offsets, end: Offsets) -> bool:
        """Whether a batch comes though nothing is new."""
        from millrace.runners import batches as feed
        from millrace.runners.batches import Offsets

        if self._since is None:
            self._since = end.clock
        if begun.clock == 0 or (
            self._feed.start is not None and begun == Offsets.from_json(self._feed.start)
        ):
            return True
        if self._target is not None:
            return feed.closes_empty(begun, end)
        waits = self._feed.ticks or feed.waits_for_empty(end, self._since, self._feed.tick)
        return waits and end.clock - begun.clock >= self._feed.tick

    def _kept(self, begun: Offsets, end: Offsets, ends: _Frozen) -> Offsets:
        """The end that was promised for the batch that begins here, if it is there and the same partitions go on; else `end`."""
        from millrace.runners.batches import Offsets

        if self._promise is None or self._promise[0] != begun.topics or end.anew(begun):
            return end
        promised = Offsets(self._promise[1], end.clock, end.bounded, end.ids)
        return (
            promised
            if promised.moved(begun) == end.moved(begun) and promised.reached(Offsets(ends.at, 0))
            else end
        )

    def _promised(self, ends: _Frozen, end: Offsets, most: int, pace: Pace | None) -> _Promise | None:
        """Where the batch after this one ends, if there is enough for a whole one."""
        from millrace.runners import batches as feed

        following = feed.advance(ends, end, now=end.clock, limit=most, pace=pace, lost=self._feed.lost)
        rows = sum(
            stop - end.topics[topic][p]
            for topic, partitions in following.topics.items()
            for p, stop in partitions.items()
        )
        return (end.topics, following.topics) if rows >= most else None

    def _pace(self) -> Pace | None:
        from millrace.runners.spark.batch_ends import told

        return told(Path(self._feed.pace), self._feed.ahead) if self._feed.pace else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Share]:
        """Every known partition in one of a few tasks, those without news too: their silence counts."""
        if start == end:
            return []
        begun, done = _offsets(start), _offsets(end)
        dealt = self._dealt(begun, done)
        if self._feed.one_task:
            dealt[0].following += dealt[1:]
        if self._promise is not None and self._promise[0] == done.topics:
            dealt[0].following += self._dealt(done, replace(done, topics=self._promise[1]))
        return dealt

    def _dealt(self, begun: Offsets, done: Offsets) -> list[Share]:
        from millrace.runners import batches as feed
        from millrace.runners.spark.open_logs import opened

        ranges = feed.ranges(opened(self._feed.log), begun, done, self._feed.lost)
        dealt = shares(ranges, done.clock, most=self._feed.tasks, rows_per_task=self._feed.rows_per_task)
        for share in dealt:
            share.bounded = done.bounded
        return dealt

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decodes and routes, or takes what was read ahead; runs in a worker."""
        from millrace.engine.exchange import Body, Packet
        from millrace.runners.spark import read_ahead as ahead

        assert isinstance(partition, Share)
        found = ahead.taken(self._feed, partition)
        for share in partition.following:
            ahead.ask(self._feed, share)
        if found is None:
            found = packets(self._feed, partition)
        else:  # they know the clock of the batch before
            found += [Packet(slot, Body(partition.now).encode()) for slot in range(len(self._feed.labels))]
        yield as_rows(found, self._feed.labels)


def packets(feed: Feed, share: Share) -> list[Packet]:
    """What a share brings to every slot."""
    from millrace.engine.source import route
    from millrace.runners.batches import read_piece
    from millrace.runners.spark.open_logs import opened

    plan, log = feed.plan.unpack(), opened(feed.log)
    topics = {topic.name: topic for topic in plan.topics}
    pieces = [
        read_piece(log, topics[topic], number, start, end, lost=feed.lost, wanted=plan.wanted[topic])
        for topic, number, start, end in share.ranges
    ]
    return route(plan, pieces, share.now, bounded=share.bounded)


@dataclass(frozen=True)
class _Frozen:
    """The ends of a log as they once were: what a query reads that is to stop when it has caught up."""

    at: dict[str, dict[int, int]]
    ids: dict[str, str | None]

    @classmethod
    def of(cls, log: Ends, topics: Iterable[str]) -> _Frozen:
        return cls(
            {topic: log.ends(topic) for topic in topics}, {topic: log.identity(topic) for topic in topics}
        )

    def ends(self, topic: str) -> dict[int, int]:
        return self.at[topic]

    def identity(self, topic: str) -> str | None:
        return self.ids[topic]


def shares(ranges: Sequence[Range], now: int, *, most: int, rows_per_task: int) -> list[Share]:
    """The ranges dealt out to few tasks, about equally; a partition stays whole."""
    rows, busy = sum(end - start for *_, start, end in ranges), sum(end > start for *_, start, end in ranges)
    dealt = [Share(now) for _ in range(max(1, min(most, busy, rows // rows_per_task)))]
    for each in sorted(ranges, key=lambda each: each[2] - each[3]):
        min(dealt, key=lambda share: share.rows).ranges.append(each)
    for share in dealt:
        share.ranges.sort()
    return dealt


def as_rows(packets: Sequence[Packet], labels: tuple[int, ...]) -> pa.RecordBatch:
    """Packets as Spark's rows."""
    slots = pa.array([labels[packet.slot] for packet in packets], pa.int32())
    return pa.RecordBatch.from_arrays(
        [slots, pa.array([packet.body for packet in packets], pa.binary())], schema=_ARROW
    )


def _offsets(said: dict[str, Any]) -> Offsets:
    from millrace.runners.batches import Offsets

    return Offsets.from_json(json.dumps(said))


def _said(offsets: Offsets) -> dict[str, Any]:
    """As Spark stores it."""
    return cast(dict[str, Any], json.loads(offsets.to_json()))
