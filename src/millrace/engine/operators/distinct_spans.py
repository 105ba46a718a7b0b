"""Distinct values in windows that overlap, by the spans of windows in which a value is.

A value is in the windows of each slice that it occurs in. Two slices of a value share windows if they are
near each other; such windows must count it once. So each slice gets the windows up to those of the next slice
with the same value: spans that do not overlap. The count of a window is then a running sum, one more where a
span begins and one less after its end, and costs nothing for windows in which nothing begins or ends.

Example, windows of 4 s every 1 s (named by their ends), one value, in the slices 0 s and 2 s:

    slice   its windows    its span
    0 s     1 s to 4 s     1 s to 2 s     the next slice begins to count with the window that ends at 3 s
    2 s     3 s to 6 s     3 s to 6 s
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import Distinct
from millrace.durations import END_OF_STREAM
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import Grid
from millrace.values.columns import END, LAST_END, PARTIAL_ROWS, SLICE, SPAN_END


def counts_distinct_only(partials: Partials) -> bool:
    """Whether nothing is asked for but numbers of distinct values."""
    return all(type(aggregate) is Distinct for aggregate in partials.node.aggregates.values())


@dataclass(frozen=True, eq=False)
class DistinctSpans:
    """Windows of an aggregation that counts distinct values."""

    grid: Grid
    partials: Partials

    @cached_property
    def _counts(self) -> dict[str, list[str]]:
        """What is counted, and by which columns; that a key has rows at all is counted by none."""
        values = {name: [one.required_column] for name, one in self.partials.node.aggregates.items()}
        return {PARTIAL_ROWS: [], **values}

    def results(self, rows: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The counts of each key and window that ends in `(low, high]`, of all rows that such windows take,
        each with its slice.
        """
        keys, every, counts = self.partials.keys, self.grid.window.every, list(self._counts)
        first, last = self._ends_between(rows, low, high)
        changes = pl.concat(self._changes(rows, first, last), how="diagonal")
        points = changes.group_by(*keys, END).agg(pl.col(counts).sum()).sort(END).lazy()
        until = pl.col(END).shift(-1).over(keys).fill_null(last + every)
        spans = points.with_columns(pl.col(counts).cum_sum().over(keys), until.alias(SPAN_END))
        ends = pl.int_ranges(END, SPAN_END, every).alias(END)
        windows = spans.filter(pl.col(PARTIAL_ROWS) > 0).with_columns(ends).explode(END, empty_as_null=False)
        return windows.select(*keys, END, *self.partials.node.aggregates).collect()

    def _ends_between(self, rows: pl.DataFrame, low: int, high: int) -> tuple[int, int]:
        """The first and the last window end in `(low, high]`; at the end of the stream the last with rows."""
        every = self.grid.window.every
        if high >= END_OF_STREAM:
            last = rows.select(self.grid.last_end(pl.col(SLICE)).max()).item()
            high = low if last is None else last
        return self.grid.end_above(low), self.grid.end_above(high) - every

    def _changes(self, rows: pl.DataFrame, first: int, last: int) -> Iterator[pl.DataFrame]:
        """For each count, where spans begin and where they have ended."""
        keys, every = self.partials.keys, self.grid.window.every
        for name, values in self._counts.items():
            identity = list(dict.fromkeys([*keys, *values]))
            slices = rows.select(*identity, SLICE).unique().sort(SLICE)
            slices = slices.drop_nulls(values) if values else slices
            next_slice = pl.col(SLICE).shift(-1).over(identity)
            begin = pl.max_horizontal(self.grid.first_end(pl.col(SLICE)), pl.lit(first, pl.Int64))
            end = pl.min_horizontal(
                self.grid.last_end(pl.col(SLICE)),
                self.grid.first_end(next_slice) - every,
                pl.lit(last, pl.Int64),
            )
            spans = slices.with_columns(begin.alias(END), end.alias(LAST_END)).filter(
                pl.col(END) <= pl.col(LAST_END)
            )
            one = pl.lit(1, pl.Int64)
            yield spans.select(*keys, END, one.alias(name))
            yield spans.select(*keys, (pl.col(LAST_END) + every).alias(END), (0 - one).alias(name))
