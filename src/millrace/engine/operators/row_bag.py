"""The rows of a changelog, as an aggregation over it keeps them: bags of rows per key and window or slice, or
their sums where those suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.engine.changelog import add_up, repeat_by_weight
from millrace.engine.operators.partials import Partials
from millrace.values.columns import OFFSET, PARTIAL_ROWS, ROW_TIME, SOURCE, WEIGHT


@dataclass(frozen=True, eq=False)
class RowBag:
    """How rows are kept, and what becomes of them."""

    partials: Partials
    place: tuple[str, ...]
    """The columns that say to which window or slice a row belongs."""

    @cached_property
    def group_columns(self) -> list[str]:
        """What tells bags apart."""
        return [*self.partials.keys, *self.place]

    @cached_property
    def identity_columns(self) -> list[str]:
        """The columns in which two rows must agree to cancel each other."""
        ordered = ["event_time"] if self.partials.is_ordered else []
        inputs = (*self.partials.input_columns, *ordered)
        return [*self.group_columns, *[c for c in inputs if c not in self.group_columns]]

    @cached_property
    def empty(self) -> pl.DataFrame:
        """No rows, as they are kept."""
        number = pl.lit(0, pl.Int64)
        rows = self.partials.node.inputs[0].schema.to_frame()
        rows = rows.with_columns(number.alias(c) for c in (*self.place, WEIGHT)).clear()
        return self._keep(rows.select(*self.identity_columns, WEIGHT))

    def net(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What changes come to, as they are kept: rows with their weight, those that cancel left out."""
        return self._keep(add_up(rows, self.identity_columns))

    def merge(self, kept: pl.DataFrame) -> pl.DataFrame:
        """What is kept of several batches, as one."""
        if self.partials.is_additive:
            return self.partials.merge(kept, group=self.place)
        return add_up(kept, self.identity_columns)

    def condense(self, kept: pl.DataFrame) -> pl.DataFrame:
        """What is kept as partial aggregates, of bags that are not empty."""
        merged = self.merge(kept)
        partials = merged if self.partials.is_additive else self._to_partials(merged)
        return partials.filter(pl.col(PARTIAL_ROWS) > 0)

    def _keep(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with weights, as sums where sums suffice."""
        if not self.partials.is_additive:
            return rows
        if self.partials.counts_only:
            counts = [pl.col(WEIGHT).alias(column) for column in self.partials.value_columns]
            return rows.select(*self.group_columns, *counts)
        retracted = rows.filter(pl.col(WEIGHT) < 0)
        if retracted.is_empty():
            return self._to_partials(rows)
        added = self._to_partials(rows.filter(pl.col(WEIGHT) > 0))
        removed = self.partials.from_retracted(repeat_by_weight(retracted).drop(WEIGHT), group=self.place)
        return self.partials.merge(pl.concat([added, removed]), group=self.place)

    def _to_partials(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Partials of rows that stand for as many as they weigh."""
        repeated = repeat_by_weight(rows).drop(WEIGHT)
        if self.partials.is_ordered:
            repeated = repeated.sort("event_time", *self.partials.input_columns).with_row_index(OFFSET)
            repeated = repeated.with_columns(
                pl.col("event_time").alias(ROW_TIME),
                pl.lit(0, pl.Int64).alias(SOURCE),
                pl.col(OFFSET).cast(pl.Int64),
            )
        return self.partials.from_rows(repeated, group=self.place)
