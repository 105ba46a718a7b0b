"""The tail of a topic on Kafka: records are yielded as soon as they are there.

A tail does not read ranges to their ends. The last offset of a transaction holds no record, so a range
`[10, 14)` that ends with a transaction yields the records 10 to 12, and its reader would then wait up to a
tenth of a second until the broker confirms that offset 13 holds none. A tail yields 10 to 12 at once, and
learns about 13 later.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from millrace.log.contract import Records

WAIT_SECONDS = 0.01
"""Seconds that one look at a partition waits for its next record."""


class TailableLog(Protocol):
    """What a tail needs of its log."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def read_available(self, topic: str, partition: int, start: int, wait: float) -> tuple[Records, int]:
        """The records that arrive within `wait` seconds, and the offset up to which those are all."""


def follow(
    log: TailableLog, topic: str, start: Literal["begin", "end"] | Mapping[int, int], wait: Callable[[], bool]
) -> Iterator[tuple[int, Records]]:
    """Yields records as they arrive; partitions that `start` lacks, or made later, from their beginning."""
    positions = {
        **log.start_offsets(topic),
        **(log.end_offsets(topic) if start == "end" else {} if start == "begin" else dict(start)),
    }
    while True:
        ends, has_records = log.end_offsets(topic), False
        behind = [partition for partition, end in ends.items() if positions.get(partition, 0) < end]
        while behind:
            for partition in behind:
                records, positions[partition] = log.read_available(
                    topic, partition, positions.get(partition, 0), WAIT_SECONDS
                )
                if len(records):
                    has_records = True
                    yield partition, records
            behind = [partition for partition in behind if positions[partition] < ends[partition]]
        if not has_records and not wait():
            return
