"""What comes, as it comes, on Kafka: records are shown when they are there.

To read a range to its end is to wait for the broker to say that nothing is left of it, for the last offset of a transaction holds no record. Whoever follows need
not wait for that.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from millrace.log.contract import Records

WAIT_SECONDS = 0.01
"""Seconds for which a partition is asked that has not shown all that it holds."""


class TailableLog(Protocol):
    """What is asked of the log."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def read_available(self, topic: str, partition: int, start: int, wait: float) -> tuple[Records, int]:
        """What is there at once, and up to where that is all."""


def follow(
    log: TailableLog, topic: str, start: Literal["begin", "end"] | Mapping[int, int], wait: Callable[[], bool]
) -> Iterator[tuple[int, Records]]:
    """Yields records as they come, in pieces; partitions left out of `start`, or made later, are read from their beginning."""
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
