"""Ranges of a partition as columns, by a consumer that stays where it is between two ranges.

A consumer fetches ahead, so the range that follows the last one is mostly there already. Offsets have gaps, where a transaction ended or was
aborted and where compaction removed records: a range is complete when a record beyond it was seen, or the end of the partition.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from numpy.typing import NDArray

from millrace.errors import LogError, OffsetGone, TopicMissing
from millrace.log.contract import Headers, Records
from millrace.log.kafka.broker_errors import Line, passing

CHUNK = 20_000
"""The most messages that are taken at a time."""
SKIP = 20_000
"""A consumer that is this little behind reads on to where it is wanted: seeking takes as long as its last request, up to a tenth of a second."""
_FOREVER = 1 << 62
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


class PartitionReader:
    """Reads one partition."""

    def __init__(self, consumer: Consumer, topic: str, partition: int, line: Line) -> None:
        self._consumer, self._topic, self._partition, self._line = consumer, topic, partition, line
        self._next: int | None = None
        """Where the consumer stands; unknown while a range is incomplete, so that whoever tries again seeks."""
        self._left: list[Message] = []
        """Messages beyond the last range."""
        self._over = -1
        """Up to where everything there is has been delivered: said once per position, so it must be remembered."""

    def read(self, start: int, end: int, written: Callable[[], int]) -> Records:
        """The committed records of `[start, end)`. `written` says how far the partition is written now."""
        if not 0 <= start <= end:
            raise OffsetGone("there is no such range")
        self._stand_at(start)
        columns, at = _Columns(), start
        began, said = time.monotonic(), False
        with _uncollected():
            while at < end and self._over < end:
                messages = self._left or self._taken(end - at)
                self._left = []
                over = self._over
                if messages:
                    began = time.monotonic()
                    at = max(at, self._sort(messages, columns, start, end))
                else:
                    self._line.check()
                    said = self._line.waited(began, None, said=said)
                if (not messages or over != self._over) and at < end and self._over < end and written() < end:
                    raise OffsetGone(f"{self._topic}[{self._partition}] is not written up to {end}")
            self._next = end
            return columns.records()

    def news(self, start: int, wait: float) -> tuple[Records, int]:
        """The committed records from `start` on that are there at once, or within `wait` seconds, and up to where those are all there are."""
        self._stand_at(start)
        columns = _Columns()
        with _uncollected():
            messages = self._left or self._consumer.consume(1, wait)
            messages, self._left = messages + (self._consumer.consume(CHUNK, 0) if messages else []), []
            if not messages:
                self._line.check()
            upto = max(start, self._sort(messages, columns, start, _FOREVER), self._over)
            self._next = upto
            return columns.records(), upto

    def _stand_at(self, start: int) -> None:
        """Has the consumer go on from `start`. Where it stands is not known then until it is said anew."""
        if self._next is None or not 0 <= start - self._next <= SKIP:
            self._left, self._over = [], -1
            self._consumer.assign([TopicPartition(self._topic, self._partition, start)])
        self._next = None

    def close(self) -> None:
        """Lets go of the broker."""
        self._consumer.close()

    def _taken(self, most: int) -> list[Message]:
        """What is there at once, else the first that comes."""
        messages = self._consumer.consume(min(CHUNK, most + 1), 0)
        return messages or self._consumer.consume(1, 0.2)

    def _sort(self, messages: list[Message], columns: "_Columns", start: int, end: int) -> int:
        """Takes the records that belong to the range, and remembers those beyond it; where the range is complete up to."""
        events = (
            [message for message in messages if message.error() is not None]
            if any(map(Message.error, messages))
            else []
        )
        for message in events:
            self._heed(message)
        records = [message for message in messages if message.error() is None] if events else messages
        if not records:
            return -1
        offsets = np.fromiter(map(Message.offset, records), np.int64, len(records))
        first, over = np.searchsorted(offsets, [start, end]).tolist()
        if over > first:
            columns.add(offsets[first:over], records[first:over])
        self._left = records[over:]
        return end if over < len(records) else int(offsets[-1]) + 1

    def _heed(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._over = message.offset() or 0
        elif error.code() in _GONE:
            raise OffsetGone("offsets are not there")
        elif error.code() in _UNKNOWN:
            raise TopicMissing(f"{self._topic} is no longer there")
        elif not passing(error) and error.code() != KafkaError._MAX_POLL_EXCEEDED:
            raise self._line.meaning(error, f"reading {self._topic}[{self._partition}]") from KafkaException(
                error
            )


class _Columns:
    """What records hold, a list for each column: filled by calls that run in C."""

    def __init__(self) -> None:
        self._offsets: list[NDArray[np.int64]] = []
        self._stamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]] | None] = []

    def add(self, offsets: NDArray[np.int64], records: list[Message]) -> None:
        self._offsets.append(offsets)
        self._stamps += [stamp for _, stamp in map(Message.timestamp, records)]
        self._keys += map(Message.key, records)
        self._values += map(Message.value, records)
        self._headers += map(Message.headers, records)  # type: ignore[arg-type] # values of headers are bytes

    def records(self) -> Records:
        if not self._offsets:
            return Records.none()
        values, keys = pa.array(self._values, pa.binary()), pa.array(self._keys, pa.binary())
        if isinstance(values, pa.ChunkedArray) or isinstance(keys, pa.ChunkedArray):
            raise LogError(
                f"a range of {len(self._values)} records holds more than 2 GiB; read fewer at a time (run.max_events_per_batch)"
            )
        offsets = self._offsets[0] if len(self._offsets) == 1 else np.concatenate(self._offsets)
        headers = [_headers(each) for each in self._headers] if any(self._headers) else None
        return Records(offsets, np.array(self._stamps, np.int64), keys, values, headers)


def _headers(said: list[tuple[str, bytes | None]] | None) -> Headers:
    return tuple((name, b"" if value is None else bytes(value)) for name, value in said) if said else ()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Many small objects that soon go again make the collector run for nothing: reading takes half the time without it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
