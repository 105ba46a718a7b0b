"""Long windows with a short slide, by sums that move along: a window is the one before it, plus what comes
in, less what goes out.

Made of its slices, each pane of an hour every second would cost 3,600 of them. Made so, it costs what
changes. That takes aggregates that are sums of whole numbers; floats without a place in those are listed
window by window (`odd`), they are rare.

Invariant: between batches, `sums` of a key is what the last complete window holds of it. Windows that end
later are found by moving: at the end `e`, the slices of the last `every` before `e` come in, and those of the
last `every` before `e - size` go out.

Example, windows of 4 s every 1 s, one key with the slices 0 s: 5, 2 s: 1, 3 s: 7. The watermark moves from 4
s to 6 s:

    window     comes in   goes out     sum
    [0, 4)                             13    kept in `sums` since the last batch
    [1, 5)     -          slice 0: 5   8
    [2, 6)     -          -            8     slice 1 is empty

So a batch reads the slices that leave, and those that were stored before their window came (`coming`), and no
others. A late row for a window that is complete is added to `sums` as well, if that window is the last one;
the windows that it corrects are made anew of their slices (`late_windows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import polars as pl

from millrace.aggregates import Count, StdDev, Sum
from millrace.aggregates.sums import EXCEPTIONS_TYPE
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import Grid
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import END, FIRST_OPEN_END, SLICE, SPAN_END

MIN_WINDOWS_PER_SLICE = 16
"""How many windows a slice must be in before sums run along."""


def uses_running_sums(grid: Grid, partials: Partials) -> bool:
    """Whether windows are made by running sums."""
    sums = all(isinstance(aggregate, Count | Sum | StdDev) for aggregate in partials.node.aggregates.values())
    return sums and grid.window.size >= MIN_WINDOWS_PER_SLICE * grid.window.every


@dataclass(frozen=True)
class SumChanges:
    """What a batch does to running sums."""

    base: pl.DataFrame
    """The sums of the last window that was complete before."""
    late_sums: pl.DataFrame
    """Those of rows that came for it now."""
    changes: pl.DataFrame
    """What comes in and goes out with each window that is complete now."""
    exceptional: pl.DataFrame
    """The slices that are summed window by window."""
    last_end: int
    """The end of the last window that is complete now."""


@dataclass(frozen=True, eq=False)
class RunningSums:
    """The windows of an operator, made by running sums.
    Between batches the sums of the last complete window are kept, by key.
    """

    grid: Grid
    partials: Partials
    empty_slices: pl.DataFrame
    """No slices, in the columns that slices have."""

    @cached_property
    def sum_columns(self) -> list[str]:
        """The columns that are summed."""
        return [
            c
            for c, dtype in self.empty_slices.schema.items()
            if dtype.is_integer() and c not in (*self.partials.keys, SLICE, FIRST_OPEN_END)
        ]

    @cached_property
    def list_columns(self) -> list[str]:
        """The lists that are empty nearly always, and joined window by window."""
        return [
            c
            for c, dtype in self.empty_slices.schema.items()
            if dtype == EXCEPTIONS_TYPE and c not in self.partials.keys
        ]

    @cached_property
    def empty_sums(self) -> pl.DataFrame:
        """No sums."""
        return self.empty_slices.select(*self.partials.keys, *self.sum_columns)

    @cached_property
    def layout(self) -> Layout:
        """How sums are kept: they do not expire, but those of keys without rows are dropped."""
        return Layout(pl.lit(BEFORE_ALL), pl.lit(END_OF_STREAM), self.total)

    def total(self, sums: pl.DataFrame) -> pl.DataFrame:
        """The sums of each key, where there are any."""
        return (
            sums.group_by(self.partials.keys)
            .agg(pl.col(self.sum_columns).sum())
            .filter(pl.any_horizontal(pl.col(self.sum_columns) != 0))
        )

    def last_complete_end(self, watermark: int | None, slices: pl.DataFrame) -> int:
        """The end of the last window that is complete; at the end of the stream,
        of the last that has rows.
        """
        if watermark is None:
            return BEFORE_ALL
        if watermark < END_OF_STREAM:
            return self.grid.end_above(watermark) - self.grid.window.every
        end = slices.select(self.grid.last_end(pl.col(SLICE)).max()).item()
        return BEFORE_ALL if end is None else int(end)

    def read_changes(
        self, state: SlotState, operator_id: str, new: pl.DataFrame, old_watermark: int | None, watermark: int
    ) -> SumChanges:
        """What a batch does that brings `new` slices and moves the watermark from `low0` to `low`.

        Of the slices that are kept, those are read that come in or go out, whatever else the windows hold.
        """
        window, table = self.grid.window, partial(state.table, operator_id)
        old_bound = BEFORE_ALL if old_watermark is None else old_watermark
        until = watermark if watermark >= END_OF_STREAM else watermark - window.size + 2 * window.every
        leaving = pl.concat(
            [self.empty_slices, *table("slices").between(old_bound - window.every, until), new]
        )
        last = self.last_complete_end(watermark, leaving)
        entering = pl.concat(
            [
                self.empty_slices,
                *table("coming").between(self.last_complete_end(old_watermark, leaving), last),
                new,
            ]
        )
        moves = (
            self.sum_changes(entering, leaving, old_watermark, last)
            if last > self.last_complete_end(old_watermark, leaving)
            else self.sum_changes(self.empty_slices, self.empty_slices, old_watermark, last)
        )
        exceptional = pl.concat(
            [self.empty_slices, *table("odd").between(old_bound, watermark), self._exceptional_slices(new)]
        )
        return SumChanges(
            pl.concat([self.empty_sums, *table("sums").between(BEFORE_ALL, END_OF_STREAM)]),
            self._late_sums(new, old_watermark),
            moves,
            exceptional,
            last,
        )

    def write(
        self, state: SlotState, operator_id: str, changes: SumChanges | None, new: pl.DataFrame
    ) -> SlotState:
        """With what later batches need: the sums, and the slices that have not come in yet,
        or are summed window by window.
        """
        last = BEFORE_ALL if changes is None else changes.last_end
        if changes is not None:
            sums = self.total(pl.concat([changes.late_sums, changes.changes.select(self.empty_sums.columns)]))
            state = (
                state.append(operator_id, "sums", sums, self.layout)
                .expire(operator_id, "coming", last)
                .expire(operator_id, "odd", last)
            )
        first_end, end = pl.col(FIRST_OPEN_END), self.grid.last_end(pl.col(SLICE))
        state = state.append(
            operator_id,
            "coming",
            new.filter(first_end > last),
            Layout(first_end, first_end, lambda frame: frame.filter(first_end > last)),
        )
        return state.append(
            operator_id, "odd", self._exceptional_slices(new), Layout(first_end, end, lambda frame: frame)
        )

    def complete_windows(self, changes: SumChanges, old_watermark: int | None) -> pl.DataFrame:
        """The aggregates of each key and window that is complete now."""
        base = self.total(pl.concat([changes.base, changes.late_sums]))
        return self._to_results(base, changes.changes, changes.exceptional, old_watermark, changes.last_end)

    def late_windows(self, slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, of slices that are all there."""
        last = self.last_complete_end(high, slices)
        return self._to_results(
            self.empty_sums,
            self.sum_changes(slices, slices, low, last, from_nothing=True),
            self._exceptional_slices(slices),
            low,
            last,
        )

    def _exceptional_slices(self, slices: pl.DataFrame) -> pl.DataFrame:
        """Those with floats that have no place in whole numbers."""
        return (
            slices.filter(pl.any_horizontal(pl.col(self.list_columns).list.len() > 0))
            if self.list_columns
            else slices.clear()
        )

    def _late_sums(self, new: pl.DataFrame, old_watermark: int | None) -> pl.DataFrame:
        """The sums of rows that belong to the last complete window, but came when it was complete."""
        end = self.last_complete_end(old_watermark, new)
        late = new.filter(pl.col(FIRST_OPEN_END) <= end, self.grid.last_end(pl.col(SLICE)) >= end)
        return self.total(late.select(self.empty_sums.columns))

    def sum_changes(
        self,
        entering_slices: pl.DataFrame,
        leaving_slices: pl.DataFrame,
        low: int | None,
        high: int,
        *,
        from_nothing: bool = False,
    ) -> pl.DataFrame:
        """What comes in and goes out at each `_end` after `low` up to `high`; `from_nothing`: slices that
        windows up to `low` hold come in first.
        """
        before, size, every = (
            self.last_complete_end(low, leaving_slices),
            self.grid.window.size,
            self.grid.window.every,
        )
        start, first, is_counted = pl.col(SLICE), pl.col(FIRST_OPEN_END), pl.lit(value=True)
        is_leaving = start.is_between(before - size, high - size, closed="left")
        if from_nothing and low is not None:
            first, is_counted = (
                pl.max_horizontal(first, pl.lit(before + every, pl.Int64)),
                start >= before + every - size,
            )
        entering = entering_slices.filter(
            is_counted & first.is_between(before, high, closed="right")
        ).with_columns(first.alias(END))
        out = (self.grid.last_end(start) + every).alias(END)
        leaving = leaving_slices.filter(is_counted & is_leaving).with_columns(
            out, *[(0 - pl.col(column)).alias(column) for column in self.sum_columns]
        )
        columns = [*self.partials.keys, END, *self.sum_columns]
        changes = pl.concat([entering.select(columns), leaving.select(columns)])
        return changes.group_by(*self.partials.keys, END).agg(pl.col(self.sum_columns).sum())

    def _to_results(
        self, base: pl.DataFrame, changes: pl.DataFrame, exceptional: pl.DataFrame, low: int | None, high: int
    ) -> pl.DataFrame:
        """The aggregates of each key and window that ends after `low`, up to `high`; `base`:
        the sums of the window before those.
        """
        keys, every = self.partials.keys, self.grid.window.every
        first_sums = base.with_columns(
            pl.lit(self.last_complete_end(low, exceptional) + every, pl.Int64).alias(END)
        ).select(changes.columns)
        points = (
            pl.concat([first_sums, changes])
            .lazy()
            .group_by(*keys, END)
            .agg(pl.col(self.sum_columns).sum())
            .sort(END)
        )
        until = pl.col(END).shift(-1).over(keys).fill_null(high + every)
        spans = points.with_columns(pl.col(self.sum_columns).cum_sum().over(keys), until.alias(SPAN_END))
        windows = self.grid.explode_spans(spans)
        return self.partials.results(self._add_lists(windows, exceptional, low, high).collect())

    def _add_lists(
        self, windows: pl.LazyFrame, exceptional: pl.DataFrame, low: int | None, high: int
    ) -> pl.LazyFrame:
        """With the floats that have no place in whole numbers."""
        if not self.list_columns:
            return windows
        group = [*self.partials.keys, END]
        empty_list = pl.lit([], EXCEPTIONS_TYPE)
        if exceptional.is_empty():
            return windows.with_columns(empty_list.alias(column) for column in self.list_columns)
        lists = (
            self.grid.expand(exceptional, low, high)
            .group_by(group)
            .agg(pl.col(self.list_columns).explode(empty_as_null=False))
        )
        return windows.join(lists, on=group, how="left", nulls_equal=True).with_columns(
            pl.col(self.list_columns).fill_null(empty_list)
        )
