"""The durable log: topics of partitions of records, and atomic commits to several of them."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace.log.writer_watermarks import History
from millrace.topics import Topic

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
Names: TypeAlias = list[str]
BinaryArray: TypeAlias = Any
"""A `pa.Array` of type `binary`; the stubs of pyarrow are too loose to say so."""
Partitioner: TypeAlias = Literal["murmur2", "millrace-hash"]
"""How a topic chooses the partition of a key: as Kafka's Java client does, or as earlier versions did."""


@dataclass(frozen=True, eq=False)
class Records:
    """Records of one partition, in offset order."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    """Append times in milliseconds."""
    keys: BinaryArray
    values: BinaryArray
    headers: list[Headers] | None = None
    """One entry for each record, or None where no record has any."""

    def __len__(self) -> int:
        """How many."""
        return len(self.offsets)

    def with_values(self) -> "Records":
        """The records that have a value."""
        rows = np.flatnonzero(self.values.is_valid().to_numpy(zero_copy_only=False))
        headers = None if self.headers is None else [self.headers[row] for row in rows.tolist()]
        row_array = pa.array(rows)
        return Records(
            self.offsets[rows],
            self.timestamps[rows],
            self.keys.take(row_array),
            self.values.take(row_array),
            headers,
        )

    @staticmethod
    def empty() -> "Records":
        """No records at all."""
        no_offsets = np.empty(0, np.int64)
        return Records(no_offsets, no_offsets, pa.array([], pa.binary()), pa.array([], pa.binary()))


@dataclass(frozen=True, eq=False)
class OutgoingRecords:
    """Records on their way to one topic.

    A record goes to the partition that the topic's partitioner chooses for its key; those without a key are
    dealt out in turn. `partitions` overrules both.
    """

    values: BinaryArray
    keys: BinaryArray | None = None
    headers: list[Headers] | None = None
    partitions: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        """Refuses columns of different lengths."""
        for name, column in (("keys", self.keys), ("headers", self.headers), ("partitions", self.partitions)):
            if column is not None and len(column) != len(self.values):
                raise ValueError(
                    f"{len(self.values)} values, but {len(column)} {name}: each record needs one"
                )

    def __len__(self) -> int:
        """How many."""
        return len(self.values)


@dataclass(frozen=True)
class PartitionInfo:
    """The offsets `[begin, end)` of one partition."""

    begin: int
    end: int
    records: int | None
    """None where only reading tells: on Kafka, offsets also count the ends of transactions, and aborted and
    compacted records (`statistics.count_records` reads).
    """
    bytes: int | None
    """None where the log does not know."""


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is stored."""

    name: str
    codec: Literal["binary", "json", "avro", "raw"]
    type_name: str
    """The full protobuf name of the event type; empty for raw topics, which have none."""
    envelope: bool
    retention: int | None
    """Milliseconds, or None: for ever."""
    partitioner: Partitioner
    partitions: list[PartitionInfo] = field(default_factory=list)


def pause() -> bool:
    """The default of `Log.tail` when nothing is new: waits a twentieth of a second and continues."""
    time.sleep(0.05)
    return True


class Writer(Protocol):
    """The only writer of its name. All records of a commit become visible together, or none do."""

    last_marker: int
    """The last marker committed under this name, -1 if none."""

    def commit(
        self,
        marker: int,
        batches: Mapping[str, OutgoingRecords],
        *,
        now: int | None = None,
        watermarks: Mapping[str, int] | None = None,
    ) -> None:
        """Appends to all topics and sets the marker, atomically.

        `watermarks`: for some topics the time before which this writer appends nothing from now on
        (`Log.writer_watermarks`). `Fenced` if another writer has taken over the name. A marker that is not
        greater than `last_marker` is refused.
        """

    def close(self) -> None:
        """Closes connections; nothing is written."""


class Log(Protocol):
    """Topics of partitions of records. Safe for several processes; offsets start at 0 and only grow."""

    url: str
    """Opens the same log in another process."""

    def ensure(self, topic: Topic) -> None:
        """Creates the topic if it is absent; `TopicMismatch` if its partitions, codec or type differ."""

    def ensure_raw(self, name: str, *, partitions: int = 1, retention: int | None = None) -> None:
        """Creates a topic of bytes, such as `dead.*`; `retention` in milliseconds, None: for ever."""

    def list_topics(self) -> Names:
        """The names of all topics, sorted."""

    def describe(self, topic: str) -> TopicInfo:
        """Declaration and partitions of a topic; `TopicMissing`."""

    def append(self, topic: str, batch: OutgoingRecords, *, now: int | None = None) -> None:
        """Appends all records; when it returns, they are on disk. `now`: the append time, by default the
        clock's.

        If it fails, the embedded log has none of them, Kafka perhaps some. Records that must be there
        together are committed by a writer.
        """

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of `[start, end)`; `OffsetGone` if some were removed or never written."""

    def identity(self, topic: str) -> str | None:
        """An id that differs when a topic is deleted and made anew; None: the log has none."""

    def max_record_bytes(self, topic: str) -> int | None:
        """The largest record that the topic accepts, counted as by `record_sizes`; None: no limit."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def await_commits(self, topic: str) -> None:
        """Returns when every transaction on the topic has ended that is open now. Then `end_offsets` counts
        what it committed; a writer's commit may return a moment before.
        """

    def writer(self, name: str) -> Writer:
        """Takes over the name: from now on, commits of an older writer of that name raise `Fenced`."""

    def writer_watermarks(self, topic: str) -> History:
        """How far each writer of the topic vouches for it (`writer_watermarks`). Older watermarks are kept
        for a while, for readers that are behind; a writer's newest one for ever.
        """

    def withdraw_watermarks(self, topic: str, writer: str) -> None:
        """Forgets the watermarks of a writer, which will not write to the topic any more."""

    def tail(
        self,
        topic: str,
        *,
        start: Literal["begin", "end"] | Mapping[int, int] = "end",
        wait: Callable[[], bool] = pause,
    ) -> Iterator[tuple[int, Records]]:
        """Yields `(partition, records)` as they arrive.

        When nothing is new, it calls `wait`, and ends if that returns False.
        """

    def expire(self, now: int, *, elapsed: int | None = None) -> None:
        """Removes what is older than its topic's retention, by chunks or segments that are old as a whole.

        `elapsed`: how much time has certainly passed, by a clock that nobody sets. With it, a topic's time is
        at most so much past its newest record. So a system clock that jumps a year ahead does not empty the
        topics:

            newest record appended at 12:00, retention 1 h, elapsed 5 min
            system clock 12:05    the topic's time is 12:05, and records before 11:05 are removed
            system clock 2030     the topic's time is 12:05, too
        """

    def close(self) -> None:
        """Closes files and connections of this process."""
