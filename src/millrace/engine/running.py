"""Long windows with a short slide, by sums that run along: a window is the one before it, with what comes in and without what goes out.

Made of its slices, each pane of an hour every second would cost 3,600 of them; made so, it costs what changes. This takes aggregates that are
sums of whole numbers. What is infinite or too large for those cannot be taken out of a sum again, and is summed window by window; it is rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import Count, StdDev, Sum
from millrace.engine.partials import Partials
from millrace.engine.state import Layout
from millrace.engine.windowing import GREATEST, LEAST, Grid

MANY = 16
"""How many windows a slice must be in before sums run along."""


def runs_along(grid: Grid, partials: Partials) -> bool:
    """Whether windows are made by running sums."""
    sums = all(isinstance(aggregate, Count | Sum | StdDev) for aggregate in partials.node.aggregates.values())
    return sums and grid.window.size >= MANY * grid.window.every


@dataclass(frozen=True)
class Moved:
    """What a batch does to running sums."""

    base: pl.DataFrame
    """The sums of the last window that was complete before."""
    missed: pl.DataFrame
    """Those of rows that came for it now."""
    moves: pl.DataFrame
    """What comes in and goes out with each window that is complete now."""
    last: int
    """The end of the last of these."""


@dataclass(frozen=True, eq=False)
class Running:
    """The windows of an operator, made by running sums. Between batches the sums of the last complete window are kept, by key."""

    grid: Grid
    partials: Partials
    slices: pl.DataFrame
    """No slices, in the columns that slices have."""

    @cached_property
    def whole(self) -> list[str]:
        """The columns that are summed."""
        return [c for c, dtype in self.slices.schema.items() if dtype.is_integer() and c not in (*self.partials.keys, "_slice", "_from")]

    @cached_property
    def rare(self) -> list[str]:
        """The columns that are zero nearly always, and summed window by window."""
        return [c for c, dtype in self.slices.schema.items() if dtype.is_float() and c not in self.partials.keys]

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """No sums."""
        return self.slices.select(*self.partials.keys, *self.whole)

    @cached_property
    def layout(self) -> Layout:
        """How sums are kept: they do not expire, but those of keys without rows are dropped."""
        return Layout(pl.lit(LEAST), pl.lit(GREATEST), self.total)

    def total(self, sums: pl.DataFrame) -> pl.DataFrame:
        """The sums of each key, where there are any."""
        return sums.group_by(self.partials.keys).agg(pl.col(self.whole).sum()).filter(pl.any_horizontal(pl.col(self.whole) != 0))

    def last(self, low: int | None, slices: pl.DataFrame) -> int:
        """The end of the last window that is complete; at the end of the stream, of the last that has rows."""
        if low is None:
            return LEAST
        if low < GREATEST:
            return self.grid.end_above(low) - self.grid.window.every
        end = slices.select(self.grid.last_end(pl.col("_slice")).max()).item()
        return LEAST if end is None else int(end)

    def moved(self, sums: list[pl.DataFrame], old: pl.DataFrame, new: pl.DataFrame, low0: int | None, low: int | None) -> Moved:
        """What a batch does that brings `new` slices to `old` ones, and moves the watermark from `low0` to `low`."""
        slices = pl.concat([old, new])
        last = self.last(low, slices)
        moves = self.moves(slices, low0, last) if last > self.last(low0, slices) else self.moves(self.slices, low0, last)
        return Moved(pl.concat([self.nothing, *sums]), self._missed(new, low0), moves, last)

    def kept(self, moved: Moved) -> pl.DataFrame:
        """What is added to the sums that are kept."""
        return self.total(pl.concat([moved.missed, moved.moves.select(self.nothing.columns)]))

    def complete(self, moved: Moved, slices: pl.DataFrame, low: int | None) -> pl.DataFrame:
        """The aggregates of each key and window that is complete now."""
        base = self.total(pl.concat([moved.base, moved.missed]))
        return self._answers(base, moved.moves, slices, low, moved.last)

    def refined(self, slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, of slices that are all there."""
        last = self.last(high, slices)
        return self._answers(self.nothing, self.moves(slices, low, last, from_nothing=True), slices, low, last)

    def _missed(self, new: pl.DataFrame, low: int | None) -> pl.DataFrame:
        """The sums of rows that belong to the last complete window, but came when it was complete."""
        end = self.last(low, new)
        late = new.filter(pl.col("_from") <= end, self.grid.last_end(pl.col("_slice")) >= end)
        return self.total(late.select(self.nothing.columns))

    def moves(self, slices: pl.DataFrame, low: int | None, high: int, *, from_nothing: bool = False) -> pl.DataFrame:
        """What comes in and goes out at each `_end` after `low` up to `high`; `from_nothing`: slices that windows up to `low` hold come in first."""
        before, size, every = self.last(low, slices), self.grid.window.size, self.grid.window.every
        start, coming, stays = pl.col("_slice"), pl.col("_from"), pl.lit(value=True)
        gone = start.is_between(before - size, high - size, closed="left")
        if from_nothing and low is not None:
            coming, stays = pl.max_horizontal(coming, pl.lit(before + every, pl.Int64)), start >= before + every - size
        entering = slices.filter(stays & coming.is_between(before, high, closed="right")).with_columns(coming.alias("_end"))
        out = (self.grid.last_end(start) + every).alias("_end")
        leaving = slices.filter(stays & gone).with_columns(out, *[-pl.col(column) for column in self.whole])
        wanted = [*self.partials.keys, "_end", *self.whole]
        moved = pl.concat([entering.select(wanted), leaving.select(wanted)])
        return moved.group_by(*self.partials.keys, "_end").agg(pl.col(self.whole).sum())

    def _answers(self, base: pl.DataFrame, moves: pl.DataFrame, slices: pl.DataFrame, low: int | None, high: int) -> pl.DataFrame:
        """The aggregates of each key and window that ends after `low`, up to `high`; `base`: the sums of the window before those."""
        keys, every = self.partials.keys, self.grid.window.every
        begun = base.with_columns(pl.lit(self.last(low, slices) + every, pl.Int64).alias("_end")).select(moves.columns)
        points = pl.concat([begun, moves]).lazy().group_by(*keys, "_end").agg(pl.col(self.whole).sum()).sort("_end")
        until = pl.col("_end").shift(-1).over(keys).fill_null(high + every)
        spans = points.with_columns(pl.col(self.whole).cum_sum().over(keys), until.alias("_until")).filter(pl.col("_n") > 0)
        ends = pl.int_ranges("_end", "_until", every)
        windows = spans.with_columns(ends.alias("_end")).drop("_until").explode("_end", empty_as_null=False)
        return self.partials.results(self._with_rare(windows, slices, low, high).collect())

    def _with_rare(self, windows: pl.LazyFrame, slices: pl.DataFrame, low: int | None, high: int) -> pl.LazyFrame:
        """With the sums of what is infinite or too large."""
        if not self.rare:
            return windows
        group = [*self.partials.keys, "_end"]
        odd = slices.filter(pl.any_horizontal(pl.col(self.rare).ne_missing(0.0)))
        if odd.is_empty():
            return windows.with_columns(pl.lit(0.0).alias(column) for column in self.rare)
        apart = self.grid.expand(odd, low, high).group_by(group).agg(pl.col(self.rare).sum())
        return windows.join(apart, on=group, how="left", nulls_equal=True).with_columns(pl.col(self.rare).fill_null(0.0))
