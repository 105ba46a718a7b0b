"""Watermarks of writers: how far in event time the writers of a topic vouch for what they append to it.

A writer that commits a batch knows how far its results are complete: it will append no record with an earlier
event time any more. It records that in the transaction of the batch, beside the topic, so that readers of the
topic see nothing new. The record holds a watermark and, for each partition, the offset from which on the
watermark holds: the writer's own records end there.

    batch  appended to t[0]         recorded               a reader at offset 2        at offset 3
    7      offsets 0, 1 (12:00:10)  12:00:10 from 2        12:00:10                    12:00:10
    8      offset 2 (12:00:15)      12:00:20 from 3        12:00:10: 2 is not read     12:00:20
    9      -                        12:00:30 from 3                                    12:00:30

The record of batch 8 must not count at offset 2: the record there is of 12:00:15. An offset that is too great
does no harm, as the watermark only holds later. With several writers the least of their watermarks counts.

On Kafka these records are a compacted topic, keyed by topic and writer; the embedded log has a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from millrace.durations import END_OF_STREAM, MIN_TIME
from millrace.log.control import ControlRecord
from millrace.timestamps import is_in_range, to_datetime

History: TypeAlias = Mapping[str, Iterable["WriterWatermark"]]
"""By writer: its watermarks of one topic, the newest first, as far back as they are kept."""


class WriterWatermark(ControlRecord, frozen=True):
    """A record: from these offsets on, the writer appends nothing with an earlier event time."""

    topic: str
    writer: str
    watermark: int
    offsets: list[int]
    """By number of the partition."""

    def check(self) -> WriterWatermark:
        """Itself; `ValueError` if its numbers cannot be times and offsets."""
        if not MIN_TIME <= self.watermark <= END_OF_STREAM or any(offset < 0 for offset in self.offsets):
            raise ValueError("holds numbers that are not times or offsets")
        return self

    def holds_at(self, partition: int, offset: int) -> bool:
        """Whether it holds for a reader that has read the partition up to this offset."""
        return partition < len(self.offsets) and self.offsets[partition] <= offset


def watermarks_at(history: History, ends: Mapping[int, int]) -> dict[int, int]:
    """The watermarks of a topic for a reader that has read its partitions up to `ends`: the least of all
    writers' newest ones that hold there. Partitions for which some writer has none are left out.
    """
    least: dict[int, int] = {}
    missing = set[int]() if history else {*ends}
    for newest_first in history.values():
        found = dict(_newest_that_hold(newest_first, ends))
        missing |= ends.keys() - found.keys()
        least |= {p: min(watermark, least.get(p, watermark)) for p, watermark in found.items()}
    return {p: watermark for p, watermark in least.items() if p not in missing}


def describe_newest(history: History) -> list[dict[str, object]]:
    """The newest watermark of each writer, for people."""
    newest = {writer: record for writer, records in sorted(history.items()) for record in [*records][:1]}
    return [
        {
            "writer": writer,
            "watermark": _format_time(record.watermark),
            "offsets": record.offsets,
        }
        for writer, record in newest.items()
    ]


def _format_time(watermark: int) -> str:
    if not is_in_range(watermark):
        return "end of stream"
    return to_datetime(watermark).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def _newest_that_hold(
    newest_first: Iterable[WriterWatermark], ends: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """For each partition the first record that holds at its end, if there is one."""
    pending = dict(ends)
    for record in newest_first:
        for partition in [p for p, end in pending.items() if record.holds_at(p, end)]:
            del pending[partition]
            yield partition, record.watermark
        if not pending:
            return
