"""Delays that are learned from the rows: what a batch says of lags, what is kept of them,
and the watermark at each row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from millrace import watermarks
from millrace.durations import BEFORE_ALL
from millrace.values.columns import CLOCK, OFFSET, PARTITION, WATERMARK
from millrace.watermarks import Percentile, lag_bucket

EXACT_ROWS = 256
"""Of so many rows of a partition in a batch, times are reported as they are, so that their lag is measured by
the clock before the batch too. Later ones are measured by the clock as read in this batch, which by then has
passed that one, or else is about to.
"""

IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]


class LagReport(NamedTuple):
    """What a batch says of the rows of one partition between two changes of the delay."""

    from_offset: int
    """The offset at which the delay changed."""
    clock: int
    """How far the clock came in these rows, as read in this batch."""
    exact_times: list[tuple[int, int]]
    """Clock and event time of single rows."""
    lag_counts: list[tuple[int, int]]
    """How many lags of each size the others have."""


class LagSegment(NamedTuple):
    """Rows of a partition that are judged by one delay."""

    from_offset: int
    delay: int
    watermark: int | None
    """The watermark before its first row."""


@dataclass(frozen=True)
class LagEstimate:
    """What is known of one partition's lags."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """How many lags of each size, of the rows that count."""
    new_counts: Mapping[int, int] = field(default_factory=dict)
    """Of those since the last change, which count from the next one on."""
    from_offset: int = -1
    delay: int = 0

    def to_json(self) -> Any:
        """As plain values."""
        return [sorted(self.counts.items()), sorted(self.new_counts.items()), self.from_offset, self.delay]

    @classmethod
    def from_json(cls, data: Any) -> LagEstimate | None:
        """The lags of `to_json`."""
        return None if data is None else cls(dict(data[0]), dict(data[1]), data[2], data[3])


def report_lags(rows: pl.DataFrame, clock: str) -> list[LagReport]:
    """What to tell of the rows of a partition that are not set aside,
    whose running clock is in column `clock`.
    """
    if rows.is_empty():
        return []
    offsets, times, clocks = (rows[column].to_numpy() for column in (OFFSET, "event_time", clock))
    changes = _last_changes(offsets)
    reports = []
    for start in np.flatnonzero(np.diff(changes, prepend=changes[0] - 1)):
        these = slice(int(start), int(np.searchsorted(changes, changes[start], side="right")))
        many = slice(max(these.start, min(EXACT_ROWS, these.stop)), these.stop)
        one = slice(these.start, many.start)
        sizes, counts = np.unique(_sizes_of(clocks[many] - times[many]), return_counts=True)
        reports.append(
            LagReport(
                int(changes[start]),
                int(clocks[these.stop - 1]),
                list(zip(clocks[one].tolist(), times[one].tolist(), strict=True)),
                list(zip(sizes.tolist(), counts.tolist(), strict=True)),
            )
        )
    return reports


def update_lag_estimate(
    percentile: Percentile,
    estimate: LagEstimate,
    clock: int | None,
    learned_watermark: int | None,
    reports: Sequence[LagReport],
) -> tuple[LagEstimate, int | None, list[LagSegment]]:
    """The lags after a batch, the watermark, and how the batch's rows are judged.
    `clock` and `mark`: those before the batch.
    """
    segments = []
    for from_offset, reached, exact_times, lag_counts in reports:
        if from_offset != estimate.from_offset:
            counts = _add_counts(estimate.counts, estimate.new_counts.items())
            estimate = LagEstimate(counts, {}, from_offset, percentile.delay_for(counts))
        exact_counts = [(lag_bucket(_latest_clock(clock, read) - time), 1) for read, time in exact_times]
        estimate = LagEstimate(
            estimate.counts,
            _add_counts(estimate.new_counts, [*exact_counts, *lag_counts]),
            from_offset,
            estimate.delay,
        )
        segments.append(LagSegment(from_offset, estimate.delay, learned_watermark))
        candidate = _latest_clock(clock, reached) - estimate.delay
        learned_watermark = candidate if learned_watermark is None else max(learned_watermark, candidate)
    return estimate, learned_watermark, segments


def watermarks_of_rows(
    rows: pl.DataFrame, clocks: Mapping[int, int | None], segments: Mapping[int, Sequence[LagSegment]]
) -> pl.Series:
    """The watermark of its partition at each row; `clocks` and `stretches` by partition,
    the former as before the batch.
    """
    offsets, parts = (rows[column].to_numpy() for column in (OFFSET, PARTITION))
    clock = rows[CLOCK].fill_null(BEFORE_ALL).to_numpy()  # null before the first row that was not set aside
    watermarks_at_rows = np.empty(len(rows), np.int64)
    for part in np.unique(parts):
        in_partition, own_segments = parts == part, segments[int(part)] or [LagSegment(0, 0, None)]
        index = np.searchsorted(
            [segment.from_offset for segment in own_segments], _last_changes(offsets[in_partition])
        )
        index = np.minimum(index, len(own_segments) - 1)  # rows set aside may have no stretch of their own
        delays = np.array([segment.delay for segment in own_segments])[index]
        floor = np.array(
            [BEFORE_ALL if segment.watermark is None else segment.watermark for segment in own_segments]
        )[index]
        before = clocks[int(part)]
        running = clock[in_partition] if before is None else np.maximum(clock[in_partition], before)
        watermarks_at_rows[in_partition] = np.maximum(running - delays, floor)
    return pl.Series(WATERMARK, watermarks_at_rows)


def _last_changes(offsets: IntArray) -> IntArray:
    """`learned_at` of many offsets."""
    lengths = np.frexp(offsets.astype(np.float64))[1].astype(np.int64)
    powers = np.int64(1) << np.maximum(lengths - 1, 0)
    few = np.where(offsets >= watermarks.FIRST, powers, 0)
    return np.where(offsets >= watermarks.EVERY, offsets // watermarks.EVERY * watermarks.EVERY, few)


def _sizes_of(lags: IntArray) -> IntArray:
    """`size_of` many lags."""
    lags = np.maximum(lags, 0)
    steps = watermarks.BUCKETS_PER_DOUBLING
    shifts = np.maximum(np.frexp(lags.astype(np.float64))[1].astype(np.int64) - steps.bit_length(), 0)
    return np.where(lags < steps, lags, (shifts + 1) * steps + (lags >> shifts) - steps)


def _add_counts(counts: Mapping[int, int], more: Any) -> dict[int, int]:
    summed = dict(counts)
    for size, count in more:
        summed[size] = summed.get(size, 0) + count
    return summed


def _latest_clock(clock: int | None, read: int) -> int:
    return read if clock is None else max(clock, read)
