"""Follows the watermarks of the writers of a topic: how far they vouch for it at the end of a batch.

They are part of a batch's offsets, which are stored before it runs, so a repeated batch sees the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from millrace.engine.source import PartitionBatch
from millrace.log.writer_watermarks import History, watermarks_at
from millrace.runners.batches import Offsets


class WatermarkSource(Protocol):
    """The part of a log's interface that following writers needs."""

    def writer_watermarks(self, topic: str) -> History:
        """How far each writer of the topic vouches for it."""


def follow_writers(log: WatermarkSource, topics: Iterable[str], start: Offsets, end: Offsets) -> Offsets:
    """The end of a batch, with the watermarks of these topics there. They do not go back: those at the start
    count where a writer has nothing to say.
    """
    watermarks = {
        topic: _latest(
            start.watermarks.get(topic, {}), watermarks_at(log.writer_watermarks(topic), end.topics[topic])
        )
        for topic in sorted(topics)
    }
    return replace(end, watermarks={topic: known for topic, known in watermarks.items() if known})


def _latest(before: Mapping[int, int], found: Mapping[int, int]) -> dict[int, int]:
    return {p: max(marks[p] for marks in (before, found) if p in marks) for p in {**before, **found}}


def with_watermarks(
    batches: Sequence[PartitionBatch], watermarks: Mapping[str, Mapping[int, int]]
) -> list[PartitionBatch]:
    """What a batch brings, with the watermarks of writers at its end."""
    return [
        replace(batch, upstream_watermark=watermarks.get(batch.topic, {}).get(batch.partition))
        for batch in batches
    ]
