"""Ranges of a partition as columns, by a consumer that keeps its position between two ranges.

A consumer fetches ahead, so the range that follows the last one has mostly arrived already. Offsets have
gaps: the end of each transaction takes one, aborted records and records that compaction removed leave theirs.
So the number of records does not tell when a range is complete. It is complete when a record beyond its end
was seen, or the end of the partition.

    offset   10  11  12  13  14  15          12 ends a transaction, 13 was aborted
    record    a   b   -   -   c   d
    read [10, 13)    a b arrive, then c at 14: nothing is left below 13. c is kept in `_unread`
    read [13, 15)    c comes from `_unread`, then d shows that the range is complete
    read [15, 16)    d comes from `_unread`; no record follows, and the client reports the end, 16
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
from millrace.log.kafka.broker_errors import BrokerErrors, is_transient

MAX_MESSAGES = 20_000
"""The most messages that one call to the client returns."""
MAX_SKIP = 20_000
"""A consumer that is at most this far behind reads on instead of seeking: a seek waits for the last fetch
request, up to a tenth of a second.
"""
_NO_END = 1 << 62
_OFFSET_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_TOPIC_UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


class PartitionReader:
    """Reads one partition."""

    def __init__(self, consumer: Consumer, topic: str, partition: int, broker_errors: BrokerErrors) -> None:
        self._consumer, self._topic, self._partition, self._broker_errors = (
            consumer,
            topic,
            partition,
            broker_errors,
        )
        self._position: int | None = None
        """Where the consumer stands; None while a range is incomplete, so a retry seeks to its start."""
        self._unread: list[Message] = []
        """Messages beyond the last range."""
        self._end_seen = -1
        """The end of the partition that the client reported last; it reports each end only once."""

    def read(self, start: int, end: int, get_end: Callable[[], int]) -> Records:
        """The committed records of `[start, end)`. `get_end` asks brokers where the partition ends now."""
        if not 0 <= start <= end:
            raise OffsetGone("there is no such range")
        self._seek(start)
        columns, position = _Columns(), start
        started, has_logged = time.monotonic(), False
        with _gc_paused():
            while position < end and self._end_seen < end:
                messages = self._unread or self._consume(end - position)
                self._unread = []
                old_end = self._end_seen
                if messages:
                    started = time.monotonic()
                    position = max(position, self._take_range(messages, columns, start, end))
                else:
                    self._broker_errors.raise_if_denied()
                    has_logged = self._broker_errors.check_waiting(started, None, has_logged=has_logged)
                if (
                    (not messages or old_end != self._end_seen)
                    and position < end
                    and self._end_seen < end
                    and get_end() < end
                ):
                    raise OffsetGone(f"{self._topic}[{self._partition}] is not written up to {end}")
            self._position = end
            return columns.records()

    def read_available(self, start: int, wait: float) -> tuple[Records, int]:
        """The committed records within `wait` seconds, and the offset up to which those are all."""
        self._seek(start)
        columns = _Columns()
        with _gc_paused():
            messages = self._unread or self._consumer.consume(1, wait)
            messages, self._unread = (
                messages + (self._consumer.consume(MAX_MESSAGES, 0) if messages else []),
                [],
            )
            if not messages:
                self._broker_errors.raise_if_denied()
            position = max(start, self._take_range(messages, columns, start, _NO_END), self._end_seen)
            self._position = position
            return columns.records(), position

    def _seek(self, start: int) -> None:
        """Makes `start` the next offset. Reading on over a few records is faster than a seek."""
        if self._position is None or not 0 <= start - self._position <= MAX_SKIP:
            self._unread, self._end_seen = [], -1
            self._consumer.assign([TopicPartition(self._topic, self._partition, start)])
        self._position = None

    def close(self) -> None:
        """Closes the connection."""
        self._consumer.close()

    def _consume(self, limit: int) -> list[Message]:
        """The messages that have arrived, else the first one that arrives within 0.2 seconds."""
        messages = self._consumer.consume(min(MAX_MESSAGES, limit + 1), 0)
        return messages or self._consumer.consume(1, 0.2)

    def _take_range(self, messages: list[Message], columns: "_Columns", start: int, end: int) -> int:
        """Adds records of the range to `columns`, keeps those beyond. Returns up to where it is complete."""
        events = (
            [message for message in messages if message.error() is not None]
            if any(map(Message.error, messages))
            else []
        )
        for message in events:
            self._handle_event(message)
        records = [message for message in messages if message.error() is None] if events else messages
        if not records:
            return -1
        offsets = np.fromiter(map(Message.offset, records), np.int64, len(records))
        first, beyond = np.searchsorted(offsets, [start, end]).tolist()
        if beyond > first:
            columns.add(offsets[first:beyond], records[first:beyond])
        self._unread = records[beyond:]
        return end if beyond < len(records) else int(offsets[-1]) + 1

    def _handle_event(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._end_seen = message.offset() or 0
        elif error.code() in _OFFSET_GONE:
            raise OffsetGone("offsets are not there")
        elif error.code() in _TOPIC_UNKNOWN:
            raise TopicMissing(f"{self._topic} is no longer there")
        elif not is_transient(error) and error.code() != KafkaError._MAX_POLL_EXCEEDED:
            raise self._broker_errors.translate(
                error, f"reading {self._topic}[{self._partition}]"
            ) from KafkaException(error)


class _Columns:
    """The parts of records, a list for each column, filled by `map` without a Python step per record."""

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
            return Records.empty()
        values, keys = pa.array(self._values, pa.binary()), pa.array(self._keys, pa.binary())
        if isinstance(values, pa.ChunkedArray) or isinstance(keys, pa.ChunkedArray):
            raise LogError(
                f"a range of {len(self._values)} records holds more than 2 GiB; read fewer at a time "
                "(run.max_events_per_batch)"
            )
        offsets = self._offsets[0] if len(self._offsets) == 1 else np.concatenate(self._offsets)
        headers = [_to_headers(each) for each in self._headers] if any(self._headers) else None
        return Records(offsets, np.array(self._stamps, np.int64), keys, values, headers)


def _to_headers(headers: list[tuple[str, bytes | None]] | None) -> Headers:
    return tuple((name, b"" if value is None else bytes(value)) for name, value in headers) if headers else ()


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Turns the garbage collector off, which many short-lived messages start for nothing: half the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
