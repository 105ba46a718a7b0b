"""Delays that are learned from the rows: what a batch says of lags, what is kept of them, and the watermark at each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from millrace import watermarks
from millrace.watermarks import Percentile, size_of

EXACT = 256
"""Of so many rows of a partition in a batch, times are told as they are, so that their lag is measured by the clock before the batch too. Later
ones are measured by the clock as read in this batch, which by then has passed that one, or else is about to."""

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


class Told(NamedTuple):
    """What a batch says of the rows of one partition between two changes of the delay."""

    at: int
    """The offset at which the delay changed."""
    clock: int
    """How far the clock came in these rows, as read in this batch."""
    exact: list[tuple[int, int]]
    """Clock and event time of single rows."""
    sizes: list[tuple[int, int]]
    """How many lags of each size the others have."""


class Stretch(NamedTuple):
    """Rows of a partition that are judged by one delay."""

    at: int
    delay: int
    mark: int | None
    """The watermark before its first row."""


@dataclass(frozen=True)
class Lags:
    """What is known of one partition's lags."""

    seen: Mapping[int, int] = field(default_factory=dict)
    """How many lags of each size, of the rows that count."""
    fresh: Mapping[int, int] = field(default_factory=dict)
    """Of those since the last change, which count from the next one on."""
    at: int = -1
    delay: int = 0

    def to_json(self) -> Any:
        """As plain values."""
        return [sorted(self.seen.items()), sorted(self.fresh.items()), self.at, self.delay]

    @classmethod
    def from_json(cls, said: Any) -> Lags | None:
        """The lags of `to_json`."""
        return None if said is None else cls(dict(said[0]), dict(said[1]), said[2], said[3])


def lags_of(rows: pl.DataFrame, clock: str) -> list[Told]:
    """What to tell of the rows of a partition that are not set aside, whose running clock is in column `clock`."""
    if rows.is_empty():
        return []
    offsets, times, clocks = (rows[column].to_numpy() for column in ("_off", "event_time", clock))
    changes = _changes(offsets)
    told = []
    for start in np.flatnonzero(np.diff(changes, prepend=changes[0] - 1)):
        these = slice(int(start), int(np.searchsorted(changes, changes[start], side="right")))
        many = slice(max(these.start, min(EXACT, these.stop)), these.stop)
        one = slice(these.start, many.start)
        sizes, counts = np.unique(_sizes(clocks[many] - times[many]), return_counts=True)
        told.append(
            Told(
                int(changes[start]),
                int(clocks[these.stop - 1]),
                list(zip(clocks[one].tolist(), times[one].tolist(), strict=True)),
                list(zip(sizes.tolist(), counts.tolist(), strict=True)),
            )
        )
    return told


def learn(
    watermark: Percentile, lags: Lags, clock: int | None, mark: int | None, told: Sequence[Told]
) -> tuple[Lags, int | None, list[Stretch]]:
    """The lags after a batch, the watermark, and how the batch's rows are judged. `clock` and `mark`: those before the batch."""
    stretches = []
    for at, reached, exact, sizes in told:
        if at != lags.at:
            seen = _sum(lags.seen, lags.fresh.items())
            lags = Lags(seen, {}, at, watermark.delay_after(seen))
        known = [(size_of(_later(clock, read) - time), 1) for read, time in exact]
        lags = Lags(lags.seen, _sum(lags.fresh, [*known, *sizes]), at, lags.delay)
        stretches.append(Stretch(at, lags.delay, mark))
        behind = _later(clock, reached) - lags.delay
        mark = behind if mark is None else max(mark, behind)
    return lags, mark, stretches


def watermark_of_rows(
    rows: pl.DataFrame, clocks: Mapping[int, int | None], stretches: Mapping[int, Sequence[Stretch]]
) -> pl.Series:
    """The watermark of its partition at each row; `clocks` and `stretches` by partition, the former as before the batch."""
    offsets, parts = (rows[column].to_numpy() for column in ("_off", "_part"))
    clock = rows["_clock"].fill_null(-(2**62)).to_numpy()  # null before the first row that was not set aside
    marks = np.empty(len(rows), np.int64)
    for part in np.unique(parts):
        mine, known = parts == part, stretches[int(part)] or [Stretch(0, 0, None)]
        place = np.searchsorted([stretch.at for stretch in known], _changes(offsets[mine]))
        place = np.minimum(place, len(known) - 1)  # rows set aside may have no stretch of their own
        delays = np.array([stretch.delay for stretch in known])[place]
        least = np.array([-(2**62) if stretch.mark is None else stretch.mark for stretch in known])[place]
        before = clocks[int(part)]
        running = clock[mine] if before is None else np.maximum(clock[mine], before)
        marks[mine] = np.maximum(running - delays, least)
    return pl.Series("_mark", marks)


def _changes(offsets: Numbers) -> Numbers:
    """`learned_at` of many offsets."""
    lengths = np.frexp(offsets.astype(np.float64))[1].astype(np.int64)
    powers = np.int64(1) << np.maximum(lengths - 1, 0)
    few = np.where(offsets >= watermarks.FIRST, powers, 0)
    return np.where(offsets >= watermarks.EVERY, offsets // watermarks.EVERY * watermarks.EVERY, few)


def _sizes(lags: Numbers) -> Numbers:
    """`size_of` many lags."""
    lags = np.maximum(lags, 0)
    steps = watermarks.STEPS
    shifts = np.maximum(np.frexp(lags.astype(np.float64))[1].astype(np.int64) - steps.bit_length(), 0)
    return np.where(lags < steps, lags, (shifts + 1) * steps + (lags >> shifts) - steps)


def _sum(counts: Mapping[int, int], more: Any) -> dict[int, int]:
    summed = dict(counts)
    for size, count in more:
        summed[size] = summed.get(size, 0) + count
    return summed


def _later(clock: int | None, read: int) -> int:
    return read if clock is None else max(clock, read)
