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

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from millrace.errors import LogError, OffsetGone, TopicMissing
from millrace.log.contract import Records
from millrace.log.kafka.broker_errors import BrokerErrors, is_transient
from millrace.log.kafka.consumers import Event, PartitionConsumer
from millrace.log.kafka.messages import TOO_LARGE

MAX_MESSAGES = 20_000
"""The most messages that one call to the client returns."""
MIN_MESSAGES = 1_000
"""The fewest that are asked for. Small ranges that follow one another are cut from what is there already."""
MAX_SKIP = 20_000
"""A consumer that is at most this far behind reads on instead of seeking: a seek waits for the last fetch
request, up to a tenth of a second.
"""
_WAIT_SECONDS = 0.2
_NO_END = 1 << 62
_NO_RECORDS = Records.empty()
_OFFSET_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
_TOPIC_UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


class PartitionReader:
    """Reads one partition."""

    def __init__(
        self, consumer: PartitionConsumer, topic: str, partition: int, broker_errors: BrokerErrors
    ) -> None:
        self._consumer, self._topic, self._partition, self._broker_errors = (
            consumer,
            topic,
            partition,
            broker_errors,
        )
        self._position: int | None = None
        """Where the consumer stands; None while a range is incomplete, so a retry seeks to its start."""
        self._unread = _NO_RECORDS
        """Records beyond the last range."""
        self._end_seen = -1
        """The end of the partition that the client reported last; it reports each end only once."""

    def read(self, start: int, end: int, get_end: Callable[[], int]) -> Records:
        """The committed records of `[start, end)`. `get_end` asks brokers where the partition ends now."""
        if not 0 <= start <= end:
            raise OffsetGone("there is no such range")
        self._seek(start)
        parts, position = list[Records](), start
        started, has_logged = time.monotonic(), False
        while position < end and (len(self._unread) or self._end_seen < end):
            old_end = self._end_seen
            limit = max(MIN_MESSAGES, end - position + 1)
            has_arrived, upto = self._take(parts, start, end, limit, _WAIT_SECONDS)
            if has_arrived:
                started = time.monotonic()
                position = max(position, upto)
            else:
                self._broker_errors.raise_if_denied()
                has_logged = self._broker_errors.check_waiting(started, None, has_logged=has_logged)
            if (
                (not has_arrived or old_end != self._end_seen)
                and position < end
                and self._end_seen < end
                and get_end() < end
            ):
                raise OffsetGone(f"{self._topic}[{self._partition}] is not written up to {end}")
        self._position = end
        return _join(parts)

    def read_available(self, start: int, wait: float) -> tuple[Records, int]:
        """The committed records within `wait` seconds, and the offset up to which those are all."""
        self._seek(start)
        parts: list[Records] = []
        has_arrived, upto = self._take(parts, start, _NO_END, MAX_MESSAGES, wait)
        if not has_arrived:
            self._broker_errors.raise_if_denied()
        self._position = max(start, upto, self._end_seen)
        return _join(parts), self._position

    def _seek(self, start: int) -> None:
        """Makes `start` the next offset. Reading on over a few records is faster than a seek."""
        if self._position is None or not 0 <= start - self._position <= MAX_SKIP:
            self._unread, self._end_seen = _NO_RECORDS, -1
            self._consumer.assign(self._topic, self._partition, start)
        self._position = None

    def close(self) -> None:
        """Closes the connection."""
        self._consumer.close()

    def _take(self, parts: list[Records], start: int, end: int, limit: int, wait: float) -> tuple[bool, int]:
        """Adds records of the range to `parts`, and keeps those beyond.

        Takes unread records, or else asks the client. Returns whether anything came, and up to where the
        range is complete.
        """
        records, events = self._unread, list[Event]()
        if not len(records):
            records, events = self._consumer.consume(min(MAX_MESSAGES, limit), wait)
        self._unread = _NO_RECORDS
        for event in events:
            self._handle_event(event)
        if not len(records):
            return bool(events), -1
        first, beyond = np.searchsorted(records.offsets, [start, end]).tolist()
        if beyond > first:
            parts.append(_cut(records, first, beyond))
        self._unread = _cut(records, beyond, len(records))
        return True, end if beyond < len(records) else int(records.offsets[-1]) + 1

    def _handle_event(self, event: Event) -> None:
        error = event.error
        if error.code() == KafkaError._PARTITION_EOF:
            self._end_seen = event.offset
        elif error.code() in _OFFSET_GONE:
            raise OffsetGone("offsets are not there")
        elif error.code() in _TOPIC_UNKNOWN:
            raise TopicMissing(f"{self._topic} is no longer there")
        elif not is_transient(error) and error.code() != KafkaError._MAX_POLL_EXCEEDED:
            raise self._broker_errors.translate(
                error, f"reading {self._topic}[{self._partition}]"
            ) from KafkaException(error)


def _cut(records: Records, first: int, beyond: int) -> Records:
    """Some of the records."""
    if first == 0 and beyond == len(records):
        return records
    if first == beyond:
        return _NO_RECORDS
    return Records(
        records.offsets[first:beyond],
        records.timestamps[first:beyond],
        records.keys.slice(first, beyond - first),
        records.values.slice(first, beyond - first),
        None if records.headers is None else records.headers[first:beyond],
    )


def _join(parts: list[Records]) -> Records:
    """The records of all parts, one after another."""
    if len(parts) <= 1:
        return parts[0] if parts else _NO_RECORDS
    has_headers = any(part.headers is not None for part in parts)
    try:
        keys = pa.concat_arrays([part.keys for part in parts])
        values = pa.concat_arrays([part.values for part in parts])
    except pa.ArrowInvalid as error:
        raise LogError(TOO_LARGE) from error
    return Records(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        keys,
        values,
        [header for part in parts for header in part.headers or [()] * len(part)] if has_headers else None,
    )
