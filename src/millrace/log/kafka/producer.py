"""Columns as records on their way to brokers."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from millrace.errors import LogError
from millrace.log.contract import Outgoing
from millrace.log.partitioning import split
from millrace.log.record_sizes import record_sizes

Failed = Callable[[KafkaError | None, Message], None]
LARGEST = 1_000_000
"""What a topic takes where its brokers do not tell us: a little less than their default."""
BATCH = 1 << 20
"""Bytes that the client library puts into one batch; a topic that takes less is sent smaller pieces."""


class Part(NamedTuple):
    """What goes to one partition."""

    topic: str
    """As Kafka knows it."""
    partition: int
    records: Outgoing
    largest: int = BATCH
    """The largest record, and so the largest batch, that the topic takes."""


class Dealer:
    """Cuts batches by partition; records without a key are dealt out in turn."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def parts(
        self, topic: str, batch: Outgoing, partitions: int, ends: Callable[[str], dict[int, int]]
    ) -> list[tuple[int, Outgoing]]:
        """What goes to each partition. `ends` says where dealing begins, the first time."""
        if not len(batch):
            return []
        if topic not in self._turns:
            keyless = (
                batch.partitions is None and partitions > 1 and (batch.keys is None or batch.keys.null_count)
            )
            if not keyless:
                return list(split(topic, batch, partitions, 0))
            self._turns[topic] = sum(ends(topic).values())
        turn = self._turns[topic]
        self._turns[topic] += len(batch)
        return list(split(topic, batch, partitions, turn))


def check_sizes(topic: str, batch: Outgoing, largest: int) -> None:
    """Refuses a record that would be refused later, before anything is sent. Key and headers count."""
    size = int(record_sizes(batch).max(initial=0))
    if size > largest:
        raise LogError(
            f"a record of {size} bytes for {topic!r} is larger than the topic takes ({largest}); store it elsewhere and append a reference, or "
            "raise max.message.bytes of the topic (and message.max.bytes under [kafka.client], if it is set). Nothing was appended"
        )


def send(producer: Producer, part: Part, now: int | None, failed: Failed) -> None:
    """Hands records over to a producer, which sends them in the background; waits while it has too many.

    Where the topic takes less than a usual batch, records are flushed before they could fill a batch that is too large.
    """
    topic, partition, records, largest = part
    sizes = record_sizes(records).tolist() if largest < BATCH else repeat(0)
    waiting = 0
    for (value, key, headers), size in zip(_rows(records), sizes, strict=False):
        waiting += size
        if waiting > largest:
            _flush(producer)
            waiting = size
        while True:
            try:
                producer.produce(
                    topic, value, key, partition, on_delivery=failed, timestamp=stamp(now), headers=headers
                )
                break
            except BufferError:
                producer.poll(0.05)
    if largest < BATCH:
        _flush(producer)


def _flush(producer: Producer) -> None:
    """Returns when all is delivered or has failed, by seconds, so that signals are heard."""
    while producer.flush(1):
        pass


def stamp(now: int | None) -> int:
    """An append time as the client library wants it: 0 means the clock's, so that the very first millisecond is the second."""
    return 0 if now is None else max(1, now)


def _rows(
    part: Outgoing,
) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]]:
    values = part.values.to_pylist()
    keys = repeat(None, len(values)) if part.keys is None else part.keys.to_pylist()
    headers = (
        repeat(None, len(values))
        if part.headers is None
        else (list[tuple[str, str | bytes | None]](each) or None for each in part.headers)
    )
    return zip(values, keys, headers, strict=True)
