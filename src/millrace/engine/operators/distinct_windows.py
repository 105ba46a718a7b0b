"""Distinct values in windows that overlap much, by where each value comes and goes.

A window's distinct values are not the sum of those of its slices, since a value may be in several. But a
value of a key that is in several slices is in one span of windows, or in a few: from the first window that
takes one of these slices to the last, as long as the next slice with it comes before the last one is gone. It
is added where such a span begins and subtracted behind its end. So what is computed of distinct values is a
running sum.

Example, windows of 4 s every 1 s, the value A at 0 s, 2 s and 9 s, B at 2 s:

    slices   in the windows that end at   changes
    A 0 s    1 … 4                        + A at 1
    A 2 s    3 … 6                        the span goes on to 6: - A at 7
    A 9 s    10 … 13                      + A at 10, - A at 14
    B 2 s    3 … 6                        + B at 3, - B at 7

Slices that are in the same windows are merged first, so the values that all windows of a batch share, by far
the most, are listed once per key. They have one span each, whatever else the windows hold of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import Count, Distinct, Reduction, StdDev, Sum
from millrace.engine.operators.partials import Partials
from millrace.engine.operators.slices import Grid
from millrace.values.columns import END, LAST_END, PARTIAL_ROWS

MIN_WINDOWS_PER_SLICE = 128
"""How many windows a slice must be in; up to there, lists of values are short enough to be merged."""


def uses_spans(grid: Grid, partials: Partials, min_windows: int | None = None) -> bool:
    """Whether windows are made of where distinct values come and go: what is computed of them must be sums of
    whole numbers, and so must all else; and a slice must be in at least so many windows.
    """
    aggregates = partials.node.aggregates.values()
    overlaps = grid.window.size >= (min_windows or MIN_WINDOWS_PER_SLICE) * grid.window.every
    has_values = any(isinstance(one, Distinct) for one in aggregates)
    if not (overlaps and has_values) or partials.node.evict is not None:
        return False
    sums = [one.of_each() if isinstance(one, Distinct) else one for one in aggregates]
    return all(
        isinstance(one, Count | Sum | StdDev) and _is_whole(one, partials.dtype_of(one)) for one in sums
    )


def _is_whole(aggregate: Reduction, dtype: pl.DataType) -> bool:
    """Whether its partials are whole numbers."""
    if dtype.is_nested():
        return False
    row = pl.DataFrame(schema={} if aggregate.column is None else {aggregate.column: dtype})
    return all(found.is_integer() for found in row.select(aggregate.partials("a", dtype)).dtypes)


@dataclass(frozen=True, eq=False)
class DistinctWindows:
    """The windows of an operator that counts distinct values, or adds them up."""

    grid: Grid
    partials: Partials

    @cached_property
    def sums(self) -> dict[str, Reduction]:
        """What is computed, as sums; of distinct values, from a column of their own."""
        aggregates = self.partials.node.aggregates.items()
        return {
            name: one.of_each(f"{name}.v") if isinstance(one, Distinct) else one for name, one in aggregates
        }

    @cached_property
    def row_columns(self) -> list[str]:
        """The columns of slices that are sums."""
        aggregates = self.partials.node.aggregates.items()
        plain = [(name, one) for name, one in aggregates if not isinstance(one, Distinct)]
        found = [expr for name, one in plain for expr in one.partials(name, self.partials.dtype_of(one))]
        return [PARTIAL_ROWS, *(expr.meta.output_name() for expr in found)]

    def windows(self, slices: pl.DataFrame, low: int | None, high: int) -> pl.LazyFrame:
        """The aggregates of each key and window that ends in `(low, high]`."""
        aligned = self.partials.merge(self.grid.align(slices, low, high))
        taken = self.grid.bounds_of(aligned, low, high).collect()
        changes = [self._row_changes(taken)]
        for name, aggregate in self.partials.node.aggregates.items():
            if isinstance(aggregate, Distinct):
                changes += self._value_changes(taken, name)
        windows = self.grid.add_changes(pl.concat(changes, how="diagonal"), self.partials.keys)
        results = [one.result(name, self._dtype(name)) for name, one in self.sums.items()]
        return windows.select(*self.partials.keys, END, *results)

    def _dtype(self, name: str) -> pl.DataType:
        return self.partials.dtype_of(self.partials.node.aggregates[name])

    def _row_changes(self, taken: pl.DataFrame) -> pl.DataFrame:
        """Rows, and sums of all values, as they come and go."""
        keys, columns = self.partials.keys, self.row_columns
        behind = (pl.col(LAST_END) + self.grid.window.every).alias(END)
        gone = [(0 - pl.col(column)).alias(column) for column in columns]
        return pl.concat([taken.select(*keys, END, *columns), taken.select(*keys, behind, *gone)])

    def _value_changes(self, taken: pl.DataFrame, name: str) -> list[pl.DataFrame]:
        """What is computed of distinct values, as they come and go."""
        spans, group, dtype = self._spans(taken, name), [*self.partials.keys, END], self._dtype(name)
        behind = (pl.col(LAST_END) + self.grid.window.every).alias(END)
        added = spans.group_by(group).agg(self.sums[name].partials(name, dtype))
        retracted = spans.with_columns(behind).group_by(group).agg(self.sums[name].retract(name, dtype))
        return [added, retracted]

    def _spans(self, taken: pl.DataFrame, name: str) -> pl.DataFrame:
        """For each value of a key the windows that have it, from `_end` to `_last_end`: pieces that do not
        overlap.
        """
        value = [*self.partials.keys, f"{name}.v"]
        rows = taken.select(*value, END, LAST_END).explode(f"{name}.v", empty_as_null=False)
        is_everywhere = (pl.col(END) == pl.col(END).min()) & (pl.col(LAST_END) == pl.col(LAST_END).max())
        everywhere = rows.filter(is_everywhere)
        others = rows.filter(~is_everywhere)
        known = everywhere.join(others, on=value, how="semi", nulls_equal=True)
        others = others.join(known, on=value, how="anti", nulls_equal=True).sort(END)
        covered = pl.col(LAST_END).cum_max().shift(1).over(value)
        begin = pl.max_horizontal(END, covered + self.grid.window.every)
        pieces = others.with_columns(begin.alias(END)).filter(pl.col(END) <= pl.col(LAST_END))
        return pl.concat([everywhere, pieces])
