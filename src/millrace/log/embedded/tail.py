"""The tail of a topic: records are yielded as they are appended.

Reads from where each partition was left to its end of now, at most `OFFSETS_PER_READ` at a time, so that one
partition with much to read does not keep the others waiting.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from millrace.log.contract import Records

OFFSETS_PER_READ = 10_000
"""The most offsets that are read at once."""


class Readable(Protocol):
    """What a tail needs of its log."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of a range."""


def follow(
    log: Readable, topic: str, start: Literal["begin", "end"] | Mapping[int, int], wait: Callable[[], bool]
) -> Iterator[tuple[int, Records]]:
    """Yields records as they arrive; partitions that `start` lacks, or made later, from their beginning."""
    positions = {
        **log.start_offsets(topic),
        **(log.end_offsets(topic) if start == "end" else {} if start == "begin" else dict(start)),
    }
    while True:
        pending = [
            (partition, end)
            for partition, end in log.end_offsets(topic).items()
            if end > positions.get(partition, 0)
        ]
        for partition, end in pending:
            begin = positions.get(partition, 0)
            positions[partition] = min(end, begin + OFFSETS_PER_READ)
            records = log.read(topic, partition, begin, positions[partition])
            if len(records):
                yield partition, records
        if not pending and not wait():
            return
