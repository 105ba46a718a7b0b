"""Long windows with a short slide, by sums that run along: a window is the one before it, with what comes in and without what goes out.

Made of its slices, each pane of an hour every second would cost 3,600 of them; made so, it costs what changes. This takes aggregates that are
sums of whole numbers. Floats without a place in those are listed window by window; they are rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import polars as pl

from millrace.aggregates import Count, StdDev, Sum
from millrace.aggregates.sums import APART
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import GREATEST, LEAST, Grid
from millrace.engine.state import Layout, SlotState

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
    odd: pl.DataFrame
    """The slices that are summed window by window."""
    last: int
    """The end of the last window that is complete now."""


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
        return [
            c
            for c, dtype in self.slices.schema.items()
            if dtype.is_integer() and c not in (*self.partials.keys, "_slice", "_from")
        ]

    @cached_property
    def rare(self) -> list[str]:
        """The lists that are empty nearly always, and joined window by window."""
        return [
            c for c, dtype in self.slices.schema.items() if dtype == APART and c not in self.partials.keys
        ]

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
        return (
            sums.group_by(self.partials.keys)
            .agg(pl.col(self.whole).sum())
            .filter(pl.any_horizontal(pl.col(self.whole) != 0))
        )

    def last(self, low: int | None, slices: pl.DataFrame) -> int:
        """The end of the last window that is complete; at the end of the stream, of the last that has rows."""
        if low is None:
            return LEAST
        if low < GREATEST:
            return self.grid.end_above(low) - self.grid.window.every
        end = slices.select(self.grid.last_end(pl.col("_slice")).max()).item()
        return LEAST if end is None else int(end)

    def moved(self, state: SlotState, id: str, new: pl.DataFrame, low0: int | None, low: int) -> Moved:
        """What a batch does that brings `new` slices and moves the watermark from `low0` to `low`.

        Of the slices that are kept, those are read that come in or go out, whatever else the windows hold.
        """
        window, kept = self.grid.window, partial(state.table, id)
        floor = LEAST if low0 is None else low0
        until = low if low >= GREATEST else low - window.size + 2 * window.every
        going = pl.concat([self.slices, *kept("slices").between(floor - window.every, until), new])
        last = self.last(low, going)
        coming = pl.concat([self.slices, *kept("coming").between(self.last(low0, going), last), new])
        moves = (
            self.moves(coming, going, low0, last)
            if last > self.last(low0, going)
            else self.moves(self.slices, self.slices, low0, last)
        )
        odd = pl.concat([self.slices, *kept("odd").between(floor, low), self._odd(new)])
        return Moved(
            pl.concat([self.nothing, *kept("sums").between(LEAST, GREATEST)]),
            self._missed(new, low0),
            moves,
            odd,
            last,
        )

    def kept(self, state: SlotState, id: str, moved: Moved | None, new: pl.DataFrame) -> SlotState:
        """With what later batches need: the sums, and the slices that have not come in yet, or are summed window by window."""
        last = LEAST if moved is None else moved.last
        if moved is not None:
            sums = self.total(pl.concat([moved.missed, moved.moves.select(self.nothing.columns)]))
            state = (
                state.append(id, "sums", sums, self.layout).expire(id, "coming", last).expire(id, "odd", last)
            )
        coming, end = pl.col("_from"), self.grid.last_end(pl.col("_slice"))
        state = state.append(
            id,
            "coming",
            new.filter(coming > last),
            Layout(coming, coming, lambda frame: frame.filter(coming > last)),
        )
        return state.append(id, "odd", self._odd(new), Layout(coming, end, lambda frame: frame))

    def complete(self, moved: Moved, low: int | None) -> pl.DataFrame:
        """The aggregates of each key and window that is complete now."""
        base = self.total(pl.concat([moved.base, moved.missed]))
        return self._answers(base, moved.moves, moved.odd, low, moved.last)

    def refined(self, slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, of slices that are all there."""
        last = self.last(high, slices)
        return self._answers(
            self.nothing,
            self.moves(slices, slices, low, last, from_nothing=True),
            self._odd(slices),
            low,
            last,
        )

    def _odd(self, slices: pl.DataFrame) -> pl.DataFrame:
        """Those with floats that have no place in whole numbers."""
        return (
            slices.filter(pl.any_horizontal(pl.col(self.rare).list.len() > 0))
            if self.rare
            else slices.clear()
        )

    def _missed(self, new: pl.DataFrame, low: int | None) -> pl.DataFrame:
        """The sums of rows that belong to the last complete window, but came when it was complete."""
        end = self.last(low, new)
        late = new.filter(pl.col("_from") <= end, self.grid.last_end(pl.col("_slice")) >= end)
        return self.total(late.select(self.nothing.columns))

    def moves(
        self,
        coming: pl.DataFrame,
        going: pl.DataFrame,
        low: int | None,
        high: int,
        *,
        from_nothing: bool = False,
    ) -> pl.DataFrame:
        """What comes in and goes out at each `_end` after `low` up to `high`; `from_nothing`: slices that windows up to `low` hold come in first."""
        before, size, every = self.last(low, going), self.grid.window.size, self.grid.window.every
        start, first, stays = pl.col("_slice"), pl.col("_from"), pl.lit(value=True)
        gone = start.is_between(before - size, high - size, closed="left")
        if from_nothing and low is not None:
            first, stays = (
                pl.max_horizontal(first, pl.lit(before + every, pl.Int64)),
                start >= before + every - size,
            )
        entering = coming.filter(stays & first.is_between(before, high, closed="right")).with_columns(
            first.alias("_end")
        )
        out = (self.grid.last_end(start) + every).alias("_end")
        leaving = going.filter(stays & gone).with_columns(
            out, *[(0 - pl.col(column)).alias(column) for column in self.whole]
        )
        wanted = [*self.partials.keys, "_end", *self.whole]
        moved = pl.concat([entering.select(wanted), leaving.select(wanted)])
        return moved.group_by(*self.partials.keys, "_end").agg(pl.col(self.whole).sum())

    def _answers(
        self, base: pl.DataFrame, moves: pl.DataFrame, odd: pl.DataFrame, low: int | None, high: int
    ) -> pl.DataFrame:
        """The aggregates of each key and window that ends after `low`, up to `high`; `base`: the sums of the window before those."""
        keys, every = self.partials.keys, self.grid.window.every
        begun = base.with_columns(pl.lit(self.last(low, odd) + every, pl.Int64).alias("_end")).select(
            moves.columns
        )
        points = (
            pl.concat([begun, moves])
            .lazy()
            .group_by(*keys, "_end")
            .agg(pl.col(self.whole).sum())
            .sort("_end")
        )
        until = pl.col("_end").shift(-1).over(keys).fill_null(high + every)
        spans = points.with_columns(pl.col(self.whole).cum_sum().over(keys), until.alias("_until")).filter(
            pl.col("_n") > 0
        )
        ends = pl.int_ranges("_end", "_until", every)
        windows = spans.with_columns(ends.alias("_end")).drop("_until").explode("_end", empty_as_null=False)
        return self.partials.results(self._with_rare(windows, odd, low, high).collect())

    def _with_rare(
        self, windows: pl.LazyFrame, odd: pl.DataFrame, low: int | None, high: int
    ) -> pl.LazyFrame:
        """With the floats that have no place in whole numbers."""
        if not self.rare:
            return windows
        group = [*self.partials.keys, "_end"]
        nothing = pl.lit([], APART)
        if odd.is_empty():
            return windows.with_columns(nothing.alias(column) for column in self.rare)
        apart = (
            self.grid.expand(odd, low, high)
            .group_by(group)
            .agg(pl.col(self.rare).explode(empty_as_null=False))
        )
        return windows.join(apart, on=group, how="left", nulls_equal=True).with_columns(
            pl.col(self.rare).fill_null(nothing)
        )
