"""What reads messages of one partition from brokers: librdkafka called directly, or confluent-kafka.

Both hand out the same columns. `ColumnConsumer` makes them of many messages at once. `ObjectConsumer` does
without the functions that this needs: it has confluent-kafka make an object of each message.
"""

import ctypes
import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace.errors import LogError
from millrace.log.contract import Headers, Records
from millrace.log.kafka import librdkafka, messages
from millrace.log.kafka.librdkafka import Library

_log = logging.getLogger("millrace.kafka")
ErrorCallback = Callable[[KafkaError], None]
_ERROR_BYTES = 512


class Event(NamedTuple):
    """What a client reports among messages: the end of a partition, or an error."""

    error: KafkaError
    offset: int


class PartitionConsumer(Protocol):
    """A client that reads one partition after the other."""

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Reads that partition from now on, beginning at an offset."""

    def consume(self, limit: int, wait: float) -> tuple[Records, list[Event]]:
        """The messages that have arrived; if there are none, those that arrive within `wait` seconds."""

    def close(self) -> None:
        """Closes connections."""


class UnsupportedSetting(Exception):
    """librdkafka does not take a setting as text."""


class ColumnConsumer:
    """Reads by librdkafka's own functions."""

    def __init__(
        self, library: Library, settings: Mapping[str, str | int | bool], on_error: ErrorCallback
    ) -> None:
        """`UnsupportedSetting` where librdkafka refuses a setting, or all of them together."""
        self._library = library
        callbacks = _error_callback(on_error), librdkafka.LogCallback(_log_line)
        client = _make_client(library, settings, callbacks)
        library.rd_kafka_poll_set_consumer(client)
        library.rd_kafka_set_log_queue(client, None)
        self._client, self._queue = client, library.rd_kafka_queue_get_consumer(client)
        self._finalizer = weakref.finalize(self, _close, library, client, self._queue, callbacks)
        self._finalizer.atexit = False

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Reads that partition from now on, beginning at an offset."""
        library, name = self._library, topic.encode()
        partitions = library.rd_kafka_topic_partition_list_new(1)
        try:
            library.rd_kafka_topic_partition_list_add(partitions, name, partition)
            library.rd_kafka_topic_partition_list_set_offset(partitions, name, partition, offset)
            code = library.rd_kafka_assign(self._client, partitions)
        finally:
            library.rd_kafka_topic_partition_list_destroy(partitions)
        if code:
            raise KafkaException(KafkaError(code))

    def consume(self, limit: int, wait: float) -> tuple[Records, list[Event]]:
        """The messages that have arrived; if there are none, those that arrive within `wait` seconds."""
        addresses = np.empty(limit, np.int64)
        count = self._fill(addresses, 0)
        if not count and (count := self._fill(addresses[:1], wait)):
            count += self._fill(addresses[1:], 0)
        if not count:
            return Records.empty(), []
        addresses = addresses[:count]
        try:
            events, kept, rows = messages.split_events(self._library, addresses)
            records = messages.to_records(self._library, kept, rows)
        finally:
            messages.destroy(self._library, addresses)
        return records, [Event(KafkaError(each.code, each.text), each.offset) for each in events]

    def close(self) -> None:
        """Closes connections."""
        self._finalizer()

    def _fill(self, addresses: messages.Addresses, wait: float) -> int:
        """Fills an array with the addresses of messages; how many these are."""
        if not len(addresses):
            return 0
        count: int = self._library.rd_kafka_consume_batch_queue(
            self._queue, int(wait * 1000), addresses.ctypes.data, len(addresses)
        )
        if count < 0:
            raise KafkaException(KafkaError(self._library.rd_kafka_last_error()))
        return count


def _make_client(
    library: Library, settings: Mapping[str, str | int | bool], callbacks: tuple[Any, Any]
) -> int:
    """A client of librdkafka; its log comes with its messages, in the thread that asks for those."""
    reason = ctypes.create_string_buffer(_ERROR_BYTES)
    conf = library.rd_kafka_conf_new()
    for name, value in {**settings, "log.queue": True}.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(conf, name.encode(), text.encode(), reason, _ERROR_BYTES):
            library.rd_kafka_conf_destroy(conf)
            raise UnsupportedSetting(reason.value.decode(errors="replace"))
    on_error, on_log = callbacks
    library.rd_kafka_conf_set_error_cb(conf, on_error)
    library.rd_kafka_conf_set_log_cb(conf, on_log)
    client: int | None = library.rd_kafka_new(librdkafka.CONSUMER, conf, reason, _ERROR_BYTES)
    if not client:
        library.rd_kafka_conf_destroy(conf)
        raise UnsupportedSetting(reason.value.decode(errors="replace"))
    return client


def _error_callback(on_error: ErrorCallback) -> Any:
    """Does not refer to the consumer, which could not be collected otherwise."""

    def report(_client: int, code: int, reason: bytes | None, _opaque: object) -> None:
        on_error(KafkaError(code, (reason or b"").decode(errors="replace")))

    return librdkafka.ErrorCallback(report)


def _close(library: Library, client: int, queue: int, _callbacks: Any) -> None:
    """Ends a client. Until then its callbacks must exist, so they are an argument."""
    library.rd_kafka_consumer_close(client)
    library.rd_kafka_queue_destroy(queue)
    library.rd_kafka_destroy(client)


def _log_line(_client: int, _level: int, facility: bytes, text: bytes) -> None:
    """Passes the library's own log on at level debug: it repeats errors that are raised anyway."""
    _log.debug("%s %s", facility.decode(errors="replace"), text.decode(errors="replace"))


class ObjectConsumer:
    """Reads by confluent-kafka, an object for each message."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Reads that partition from now on, beginning at an offset."""
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def consume(self, limit: int, wait: float) -> tuple[Records, list[Event]]:
        """The messages that have arrived; if there are none, those that arrive within `wait` seconds."""
        with _gc_paused():
            found = self._consumer.consume(limit, 0)
            if not found and (found := self._consumer.consume(1, wait)) and limit > 1:
                found += self._consumer.consume(limit - 1, 0)
            if not any(map(Message.error, found)):
                return _to_records(found), []
            events = [
                Event(error, message.offset() or 0)
                for message in found
                if (error := message.error()) is not None
            ]
            return _to_records([message for message in found if message.error() is None]), events

    def close(self) -> None:
        """Closes connections."""
        self._consumer.close()


def _to_records(found: list[Message]) -> Records:
    """Messages as columns, filled by `map` without a Python step per message."""
    if not found:
        return Records.empty()
    values = pa.array(list(map(Message.value, found)), pa.binary())
    keys = pa.array(list(map(Message.key, found)), pa.binary())
    if isinstance(values, pa.ChunkedArray) or isinstance(keys, pa.ChunkedArray):
        raise LogError(messages.TOO_LARGE)
    stamps = [stamp for _, stamp in map(Message.timestamp, found)]
    headers: list[Any] = list(map(Message.headers, found))
    return Records(
        np.fromiter(map(Message.offset, found), np.int64, len(found)),
        np.array(stamps, np.int64),
        keys,
        values,
        list(map(_to_headers, headers)) if any(headers) else None,
    )


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
