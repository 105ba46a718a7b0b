"""Stored slices as the windows of one batch take them: those that all of these windows share are one partial
per key.

Of windows of an hour every second that end from 12:00:01 to 12:00:25, the slices of the first and of the last
25 s tell them apart. What lies between is in all of them, so its total per key will do. It is not added up
anew in each batch: slices of a chunk are totalled in blocks of 16, 256, …, once for all batches that read the
chunk.

Example with blocks of 4 and 16, a chunk of the slices 0 to 63, windows that need the slices 2 to 5 one by one
and share those from 6 on:

    slices 2 3 4 5     one by one
    slices 6 7         one by one, up to the next block
    slices 8 … 15      two blocks of 4
    slices 16 … 63     three blocks of 16

Of the least, greatest or latest value, most slices are not even stored for long: a slice counts no more where
a later one of the key is as good, and stays longer. See `forget_superseded`.

Totals are kept at hand, not in the state: they are made again where they are missing. Rows that do not count
from the first of the windows on (`_from`) are not added up: they are new or were late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import Grid
from millrace.engine.state import Chunk, SizedCache, StateTable
from millrace.values.columns import FIRST_OPEN_END, SLICE, SLICE_BLOCK

BLOCK = 16
"""How many blocks of one level make one of the next."""
MIN_WINDOWS_PER_SLICE = 16
"""How many windows a slice must be in before slices are totalled in blocks."""
MIN_BATCHES_PER_WINDOW = 8
"""How many batches like this one a window must span: totals are worth it where many batches read them."""
UNSETTLED_SHARE = 4
"""A chunk is totalled once fewer than one in so many of its rows is yet to count from the first window on."""
CACHE_BYTES = 256 << 20
"""How many bytes of totals a process keeps at hand."""


@dataclass(frozen=True)
class _Totals:
    """The totals of a chunk."""

    first: int
    """The number of the first slice that is added up."""
    last: int
    """The number of the last."""
    settled_from: int
    """The greatest `_from` of the rows that are added up."""
    levels: tuple[pl.DataFrame, ...]
    """Totals by key and block, in the order of blocks: blocks of `BLOCK` slices, of `BLOCK` of those, …, up
    to the level that has no more than two blocks.
    """
    unsettled: pl.DataFrame
    """The other rows."""

    @property
    def size(self) -> float:
        """Bytes."""
        return sum(frame.estimated_size() for frame in (*self.levels, self.unsettled))


_cache: SizedCache[tuple[str, Partials, Grid], _Totals] = SizedCache(CACHE_BYTES)


def clear_cache() -> None:
    """Drops all totals, so that they must be made again."""
    _cache.clear()


@dataclass(frozen=True, eq=False)
class SharedSlices:
    """How an operator reads stored slices where windows overlap much."""

    grid: Grid
    partials: Partials

    def read(self, table: StateTable, low: int, high: int) -> list[pl.DataFrame]:
        """The slices that windows take which end in `(low, high]`."""
        first, last = self.grid.end_above(low), self.grid.last_end_until(high)
        chunks = table.chunks_between(low, high)
        if self.grid.window.size < MIN_BATCHES_PER_WINDOW * (last - first + self.grid.window.every):
            return [chunk.frame for chunk in chunks]
        return [part for chunk in chunks for part in self._read_chunk(chunk, first, last)]

    def forget_superseded(self, slices: pl.DataFrame, first_end: int) -> pl.DataFrame:
        """The slices that windows which end from `first_end` on may need; of the latest value, a slice is
        needed no more when the key has a later one that all these windows take.
        """
        if self.partials.superseded is None:
            return slices
        is_settled = pl.col(FIRST_OPEN_END) <= first_end
        settled = slices.filter(is_settled).sort(SLICE)
        needed = settled.filter(~self.partials.superseded.over(self.partials.keys))
        return pl.concat([needed, slices.filter(~is_settled)])

    def _read_chunk(self, chunk: Chunk, first_end: int, last_end: int) -> Iterator[pl.DataFrame]:
        totals = self._totals_of(chunk, first_end) if last_end < END_OF_STREAM else None
        if totals is None:
            yield chunk.frame
            return
        yield totals.unsettled
        at = self._last_slice(last_end)
        widths = [BLOCK**level for level in range(1, len(totals.levels) + 1)]
        if at <= totals.first:
            at = totals.first // widths[-1] * widths[-1]
        blocks_from = _round_up(at, BLOCK)
        yield from self._read_slices(chunk, totals, self._last_slice(first_end), blocks_from)
        for level, width in zip(totals.levels, widths, strict=True):
            first = blocks_from // width
            until = totals.last // width + 1 if width == widths[-1] else _round_up(first, BLOCK)
            yield self._label(_between(level, first, until), first_end, last_end).select(chunk.frame.columns)
            blocks_from = until * width

    def _read_slices(self, chunk: Chunk, totals: _Totals, first: int, until: int) -> Iterator[pl.DataFrame]:
        """The slices from one to before another, one by one."""
        if first <= totals.last and until > totals.first:
            window = self.grid.window
            start, end = (number * window.every + window.offset for number in (first, until))
            is_settled = pl.col(FIRST_OPEN_END) <= totals.settled_from
            yield chunk.frame.filter(is_settled, pl.col(SLICE).is_between(start, end, closed="left"))

    def _label(self, totals: pl.DataFrame, first_end: int, last_end: int) -> pl.DataFrame:
        """Totals as slices that all windows from one to another take."""
        start = last_end - self.grid.window.size
        return totals.with_columns(
            pl.lit(start, pl.Int64).alias(SLICE), pl.lit(first_end, pl.Int64).alias(FIRST_OPEN_END)
        )

    def _last_slice(self, end: int) -> int:
        """The number of the first slice that windows up to this end take, and all before them do not lose."""
        window = self.grid.window
        return (end - window.size - window.offset) // window.every

    def _totals_of(self, chunk: Chunk, first_end: int) -> _Totals | None:
        """The totals of a chunk; none where many of its rows do not count from this end on."""
        key = chunk.digest, self.partials, self.grid
        totals = _cache.get(key)
        if totals is None:
            is_settled = pl.col(FIRST_OPEN_END) <= first_end
            unsettled = chunk.frame.filter(~is_settled)
            if unsettled.height * UNSETTLED_SHARE >= chunk.rows:
                return None
            settled = chunk.frame.filter(is_settled) if unsettled.height else chunk.frame
            totals = self._add_up(settled, unsettled)
            _cache.put(key, totals, totals.size)
        return totals if totals.settled_from <= first_end else None

    def _add_up(self, slices: pl.DataFrame, unsettled: pl.DataFrame) -> _Totals:
        number = (pl.col(SLICE) - self.grid.window.offset) // self.grid.window.every
        first, last, settled_from = slices.select(
            number.min(), number.max().alias("last"), pl.col(FIRST_OPEN_END).max()
        ).row(0)
        levels: list[pl.DataFrame] = []
        width = 1
        level = slices.with_columns(number.alias(SLICE_BLOCK))
        while not levels or last // width - first // width > 1:
            block = pl.col(SLICE_BLOCK) // BLOCK
            level = self.partials.merge(level.with_columns(block), group=(SLICE_BLOCK,)).sort(SLICE_BLOCK)
            levels.append(level)
            width *= BLOCK
        return _Totals(first, last, settled_from, tuple(levels), unsettled)


def _between(level: pl.DataFrame, first: int, until: int) -> pl.DataFrame:
    """The totals of the blocks from one to before another."""
    blocks = level[SLICE_BLOCK]
    start, end = int(blocks.search_sorted(first)), int(blocks.search_sorted(until))
    return level.slice(start, end - start)


def _round_up(number: int, factor: int) -> int:
    return -(-number // factor) * factor
