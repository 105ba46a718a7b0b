"""What comes, as it comes: the tail of any log."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

from millrace.log.contract import Records

PIECE = 10_000
"""The most offsets that are read at once."""


class Readable(Protocol):
    """What is asked of a log."""

    def begins(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def ends(self, topic: str) -> dict[int, int]:
        """One past the last offset, by partition."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The records of a range."""


def follow(
    log: Readable, topic: str, start: Literal["begin", "end"] | Mapping[int, int], wait: Callable[[], bool]
) -> Iterator[tuple[int, Records]]:
    """Yields records as they come, in pieces; partitions left out of `start`, or made later, are read from their beginning."""
    at = {
        **log.begins(topic),
        **(log.ends(topic) if start == "end" else {} if start == "begin" else dict(start)),
    }
    while True:
        news = [(partition, end) for partition, end in log.ends(topic).items() if end > at.get(partition, 0)]
        for partition, end in news:
            begin = at.get(partition, 0)
            at[partition] = min(end, begin + PIECE)
            records = log.read(topic, partition, begin, at[partition])
            if len(records):
                yield partition, records
        if not news and not wait():
            return
