"""Aggregates of windows with an evictor: the rows themselves are kept, and condensed when a pane is shown.

What is kept of a window is a list of its rows, with the columns that the aggregates and the evictor look at.
Merging joins lists. For a pane the rows of each window are put in order, the evictor leaves some of them out,
and the aggregates condense the others. Example, `last(2)` and a sum:

    batch  rows that come    kept           pane
    1      5 s: 3, 7 s: 4    3, 4           7
    2      6 s: 1            1, 4           5: in order, 3 is the first of three

Rows that no later pane can show are not kept: whatever comes, the last two of all rows are among the last two
so far and those that come. That is so for `last` and `within`; for others, all rows are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import ORDER
from millrace.engine.operators.partials import Partials
from millrace.evictors import Custom, DeltaEvictor, Evictor, LastEvictor, Within
from millrace.values.columns import (
    FIRST_OPEN_END,
    KEPT_ROWS,
    OFFSET,
    PARTIAL_ROWS,
    ROW_TIME,
    SHOWN_WINDOW,
    SLICE,
    SOURCE,
)


@dataclass(frozen=True, eq=False)
class EvictedPartials(Partials):
    """Keeps rows in place of partials."""

    is_ordered = False
    is_additive = False
    counts_only = False

    @property
    def _evict(self) -> Evictor:
        assert self.node.evict is not None
        return self.node.evict

    @cached_property
    def plain(self) -> Partials:
        """How the aggregates condense the rows that count."""
        return Partials(self.node)

    @cached_property
    def input_columns(self) -> list[str]:
        """The columns that the aggregates and the evictor look at."""
        if self._evict.columns is None:
            return sorted(self.node.row_schema)
        return sorted({*self.plain.input_columns, *self._evict.columns})

    @cached_property
    def _row_exprs(self) -> list[pl.Expr]:
        kept = dict.fromkeys([*ORDER, *(c for c in self.input_columns if c not in self.keys)])
        return [pl.len().cast(pl.Int64).alias(PARTIAL_ROWS), pl.struct(*kept).alias(KEPT_ROWS)]

    @cached_property
    def _merge_exprs(self) -> list[pl.Expr]:
        return [pl.col(PARTIAL_ROWS).sum(), pl.col(KEPT_ROWS).explode(empty_as_null=False)]

    def from_rows(
        self,
        rows: pl.DataFrame,
        *,
        group: tuple[str, ...] = (SLICE, FIRST_OPEN_END),
        extra: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """The rows of each group that a pane may show."""
        return self._forget(super().from_rows(rows, group=group, extra=extra))

    def merge(
        self,
        partials: pl.DataFrame,
        *,
        group: tuple[str, ...] = (SLICE, FIRST_OPEN_END),
        extra: Sequence[pl.Expr] = (),
    ) -> pl.DataFrame:
        """The rows of several, as long as a pane may show them."""
        return self._forget(super().merge(partials, group=group, extra=extra))

    def _forget(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Without the rows that no later pane can show."""
        row = pl.element().struct
        match self._evict:
            case LastEvictor(rows=count):
                in_order = pl.element().sort_by([row.field(c) for c in ORDER], maintain_order=True)
                kept = pl.col(KEPT_ROWS).list.eval(in_order.tail(count))
            case Within(span=span):
                time = row.field(ROW_TIME)
                kept = pl.col(KEPT_ROWS).list.eval(pl.element().filter(time > time.max() - span))
            case _:
                return partials
        return partials.with_columns(kept)

    def add_results(self, partials: pl.DataFrame) -> pl.DataFrame:
        """Cells with the aggregates of the rows that count; those of none, where all are left out."""
        cells = partials.with_row_index(SHOWN_WINDOW).with_columns(pl.col(SHOWN_WINDOW).cast(pl.Int64))
        rows = cells.select(*self.keys, SHOWN_WINDOW, KEPT_ROWS).explode(KEPT_ROWS, empty_as_null=False)
        counting = self._keep(rows.unnest(KEPT_ROWS).sort(SHOWN_WINDOW, *ORDER, maintain_order=True))
        names = list(self.node.aggregates)
        results = self.plain.add_results(self.plain.from_rows(counting, group=(SHOWN_WINDOW,))).select(
            SHOWN_WINDOW, *names
        )
        unshown = cells.select(SHOWN_WINDOW).join(results, on=SHOWN_WINDOW, how="anti")
        if unshown.height:
            none = self.plain.add_results(self.plain.empty).select(names)
            results = pl.concat([results, unshown.join(none, how="cross")])
        return cells.join(results, on=SHOWN_WINDOW, how="left", maintain_order="left").drop(SHOWN_WINDOW)

    def _keep(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Of rows in order, window by window, those that count."""
        match self._evict:
            case LastEvictor() | Within():  # no others are kept
                return rows
            case DeltaEvictor(column=column, threshold=threshold):
                return rows.filter(_is_near(pl.col(column), rows.schema[column], threshold))
            case Custom() as custom:
                return self._keep_by_user(custom, rows)
            case other:
                raise TypeError(f"{other} is not known to the engine")

    def _keep_by_user(self, custom: Custom, rows: pl.DataFrame) -> pl.DataFrame:
        """What a function of the user's makes of each window."""
        names = self.node.row_schema.names()
        kept = [
            custom.keep(window.select(names))
            .drop(self.keys, strict=False)
            .join(window.select(*self.keys, SHOWN_WINDOW).head(1), how="cross")
            for window in rows.partition_by(SHOWN_WINDOW, maintain_order=True)
        ]
        if not kept:
            return self.node.add_arguments(rows)
        return self.node.add_arguments(pl.concat(kept)).with_columns(
            pl.col("event_time").alias(ROW_TIME),
            pl.lit(0, pl.Int64).alias(SOURCE),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET),
        )


def _is_near(column: pl.Expr, dtype: pl.DataType, threshold: float) -> pl.Expr:
    """Whether a value is near the newest one of its window; also where there is no value."""
    wide = column.cast(pl.Int128) if dtype.is_integer() else column
    is_missing = column.is_null() | (column.is_nan() if dtype.is_float() else pl.lit(value=False))
    newest = wide.filter(~is_missing).last().over(SHOWN_WINDOW)
    return is_missing | (wide == newest) | ((wide - newest).abs() <= threshold)
