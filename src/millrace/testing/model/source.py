"""The rows of sources in the model, and how far the clock and the watermark of each partition have come."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from millrace import durations, graph
from millrace.testing.model.values import Row
from millrace.watermarks import (
    EMPTY_PARTITION_TIMEOUT,
    Bounded,
    IngestionTime,
    Percentile,
    Punctuation,
    Upstream,
    Watermark,
    lag_bucket,
    last_update_offset,
)


class SourceEvent(NamedTuple):
    """One row of a source: where it lies in the log, its times, and the fields of its type."""

    topic: str
    partition: int
    offset: int
    event_time: int
    ingestion_time: int
    values: Row


@dataclass
class ModelPartition:
    """A source partition as one operator sees it."""

    read: graph.Read
    partition: int
    clock: float = -math.inf
    floor: float = -math.inf
    last_active: int | None = None
    is_idle: bool = False
    is_empty: bool = True
    """Whether it has never had an event."""
    furthest_watermark: float = -math.inf
    lags: list[tuple[int, int]] = field(default_factory=list)
    """Offset and lag of every row, where the delay is learned."""
    upstream_watermark: int | None = None
    """How far the writers of the topic vouch for what follows this batch."""

    @property
    def watermark(self) -> float:
        """The greatest clock less delay so far,
        but at least the operator's watermark when the partition woke up.
        """
        return max(self.furthest_watermark, self.floor)

    def advance(self, event: SourceEvent) -> None:
        """Moves the clock and the watermark by one event."""
        watermark = self.read.watermark
        self.clock = max(self.clock, event_clock(watermark, event, self.read.schema))
        delay = watermark.delay
        if isinstance(watermark, Percentile):
            delay = watermark.delay_for(
                Counter(lag_bucket(lag) for at, lag in self.lags if at < last_update_offset(event.offset))
            )
            self.lags.append((event.offset, int(self.clock) - event.event_time))
        self.furthest_watermark = max(self.furthest_watermark, self.clock - delay)

    def wake(self, watermark: float, now: int) -> None:
        """Notes that it has rows in this batch."""
        if self.is_idle:
            self.floor = watermark
        self.is_idle, self.last_active, self.is_empty = False, now, False

    def note_silence(self, now: int) -> None:
        """Notes that it has none."""
        if self.last_active is None:
            self.last_active = now
        idle_after = self.read.watermark.idle
        if idle_after is None and self.is_empty:
            idle_after = EMPTY_PARTITION_TIMEOUT
        self.is_idle = idle_after is not None and now - self.last_active >= idle_after

    def follow_writers(self, watermark: float, now: int) -> None:
        """After the rows of a batch: the watermark is that of the writers, if the read follows them. Where it
        moves, the partition is not idle.
        """
        upstream = self.upstream_watermark
        if not isinstance(self.read.watermark, Upstream) or upstream is None:
            return
        if upstream > self.furthest_watermark:
            if self.is_idle:
                self.floor = watermark
            self.furthest_watermark, self.is_idle, self.last_active = upstream, False, now


def source_row(event: SourceEvent) -> Row:
    """The columns that a read gives to what follows."""
    return {**event.values, "event_time": event.event_time, "ingestion_time": event.ingestion_time}


def event_clock(watermark: Watermark, event: SourceEvent, schema: pl.Schema) -> float:
    """The time to which an event moves the clock; -inf if it does not."""
    if isinstance(watermark, Bounded):
        return min(event.event_time, event.ingestion_time)
    if isinstance(watermark, IngestionTime):
        return event.ingestion_time
    if isinstance(watermark, Upstream):
        return -math.inf
    assert isinstance(watermark, Punctuation)
    claimed = pl.DataFrame([source_row(event)], schema=schema).select(claimed=watermark.time_in_millis)[
        "claimed"
    ][0]
    if (
        claimed is None
        or claimed < durations.MIN_TIME
        or (watermark.is_limited and claimed > event.ingestion_time + watermark.ahead)
    ):
        return -math.inf
    return int(claimed)
