"""Sends columns as records to brokers, partition by partition."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from millrace.errors import LogError
from millrace.log.contract import OutgoingRecords, Partitioner
from millrace.log.partitioning import split_by_partition
from millrace.log.record_sizes import record_sizes

DeliveryCallback = Callable[[KafkaError | None, Message], None]
DEFAULT_MAX_RECORD_BYTES = 1_000_000
"""The largest record where brokers do not answer the question for it: a little less than their default."""
BATCH_BYTES = 1 << 20
"""Bytes in one batch of the client library. For a topic with a smaller limit, records are flushed earlier."""


class PartitionRecords(NamedTuple):
    """Records for one partition."""

    topic: str
    """Its name in Kafka, with the prefix of the log."""
    partition: int
    records: OutgoingRecords
    max_record_bytes: int = BATCH_BYTES
    """The largest record, and so the largest batch, that the topic takes."""


class PartitionSplitter:
    """Cuts batches by partition, and remembers whose turn it is, for records without a key."""

    def __init__(self) -> None:
        self._next_turns: dict[str, int] = {}

    def split(
        self,
        topic: str,
        batch: OutgoingRecords,
        partitions: int,
        partitioner: Partitioner,
        end_offsets: Callable[[str], dict[int, int]],
    ) -> list[tuple[int, OutgoingRecords]]:
        """The records of each partition. The first turn in a topic follows from `end_offsets`, so that
        processes do not all begin with partition 0.
        """
        if not len(batch):
            return []
        if topic not in self._next_turns:
            has_keyless = (
                batch.partitions is None and partitions > 1 and (batch.keys is None or batch.keys.null_count)
            )
            if not has_keyless:
                return list(split_by_partition(topic, batch, partitions, 0, partitioner))
            self._next_turns[topic] = sum(end_offsets(topic).values())
        first_turn = self._next_turns[topic]
        self._next_turns[topic] += len(batch)
        return list(split_by_partition(topic, batch, partitions, first_turn, partitioner))


def check_sizes(topic: str, batch: OutgoingRecords, max_bytes: int) -> None:
    """Refuses a batch with a record that is too large, before anything is sent. Key and headers count."""
    size = int(record_sizes(batch).max(initial=0))
    if size > max_bytes:
        raise LogError(
            f"a record of {size} bytes for {topic!r} is larger than the topic takes ({max_bytes}); store it "
            "elsewhere and append a reference, or raise max.message.bytes of the topic (and "
            "message.max.bytes under [kafka.client], if it is set). Nothing was appended"
        )


def send(producer: Producer, part: PartitionRecords, now: int | None, on_delivery: DeliveryCallback) -> None:
    """Queues records in a producer, which sends them in the background; waits while its queue is full.

    Brokers compare the limit of a topic with whole batches. So where it is smaller than a usual batch,
    records are flushed before they could fill a batch that is too large.
    """
    topic, partition, records, max_bytes = part
    sizes = record_sizes(records).tolist() if max_bytes < BATCH_BYTES else repeat(0)
    unflushed, produce, timestamp = 0, producer.produce, to_timestamp(now)
    for (value, key, headers), size in zip(_rows(records), sizes, strict=False):
        unflushed += size
        if unflushed > max_bytes:
            _flush(producer)
            unflushed = size
        options: dict[str, Any] = {} if headers is None else {"headers": headers}
        while True:
            try:
                produce(topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp, **options)
                break
            except BufferError:
                producer.poll(0.05)
    if max_bytes < BATCH_BYTES:
        _flush(producer)


def _flush(producer: Producer) -> None:
    """Returns when all is delivered or has failed."""
    while count_undelivered(producer):
        pass


def count_undelivered(producer: Producer) -> int:
    """How many records are on their way still, after a second of waiting at most, so that Ctrl-C is noticed.

    Of a producer that is fenced at this moment the client library may lose the error that it means to raise
    (`SystemError`). The error is not lost: the next call of the transaction raises it.
    """
    try:
        return producer.flush(1)
    except SystemError:
        return len(producer)


def to_timestamp(now: int | None) -> int:
    """An append time for the client library, for which 0 means "now": millisecond 0 of 1970 becomes 1."""
    return 0 if now is None else max(1, now)


def _rows(
    part: OutgoingRecords,
) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]]:
    values = part.values.to_pylist()
    keys = repeat(None, len(values)) if part.keys is None else part.keys.to_pylist()
    headers = (
        repeat(None, len(values))
        if part.headers is None
        else (list[tuple[str, str | bytes | None]](record_headers) or None for record_headers in part.headers)
    )
    return zip(values, keys, headers, strict=True)
