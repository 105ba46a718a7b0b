"""Part of the operator `over`: frames without a beginning, and row numbers.

Of each key one partial aggregate is kept, that of all rows so far. New rows are added to it one after the
other, on columns: the running sum of a partial is its cumulative sum.

Example, a running sum; the key has a total of 7 from earlier batches:

    row           (kept)   12 s   15 s   15 s
    amount                 1      2      4
    running       7        8      10     14
    rows                   8      10     14
    range                  8      14     14     rows of the same time are in each other's frames
    rows, to -1            7      8      10     without the row itself
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.aggregates import Reduction, count
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.over_frames import (
    expiry_of_key,
    frame_columns,
    framed_columns,
    in_order,
    join_rows,
    kept_schema,
    partials_of,
    result_of,
    without_rows,
)
from millrace.engine.ordered_rows import OrderedBatch
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Frame, Over
from millrace.values.columns import BAG_ROW, EXPIRES_AT, GROUP, IS_NEW, ROW_NUMBER, ROW_TIME, STATE_VERSION

RUNNING = "running"
"""State table: the partial aggregates of all rows of a key so far."""
_UP_TO_ROW = Frame("rows", None, 0)


@dataclass(frozen=True, eq=False)
class RunningTotals:
    """Columns from all rows of a key so far."""

    operator: Operator
    node: Over

    @staticmethod
    def is_needed(node: Over) -> bool:
        """Whether a column depends on all rows so far."""
        return bool(node.row_numbers) or RunningTotals._has_frames(node)

    @staticmethod
    def _has_frames(node: Over) -> bool:
        return bool(node.framed) and node.frame.lower is None

    @cached_property
    def _framed(self) -> list[str]:
        return list(self.node.framed) if self._has_frames(self.node) else []

    @cached_property
    def _no_rows(self) -> pl.DataFrame:
        columns = framed_columns(self.node) if self._framed else []
        return kept_schema(self.node, columns).drop(EXPIRES_AT)

    @cached_property
    def _no_partials(self) -> pl.DataFrame:
        """No partials, in the columns that are kept; a `_t` besides, which says when the key is quiet."""
        return self._to_partials(self._no_rows)

    @cached_property
    def _partials_of_nothing(self) -> pl.DataFrame:
        """The partials of an empty frame, in one row: a count of 0 and the like."""
        one_row = self._no_rows.clear(1).with_columns(pl.lit(0, pl.Int64).alias(ROW_NUMBER))
        frame_before = one_row.rolling(ROW_NUMBER, period="1i", offset="-2i")
        return frame_before.agg(self._partial_exprs()).drop(ROW_NUMBER)

    @cached_property
    def _table(self) -> KeyedTable:
        number = pl.lit(0, pl.Int64)
        empty = self._no_partials.with_columns(number.alias(EXPIRES_AT), number.alias(STATE_VERSION))
        return KeyedTable(self.operator.id, RUNNING, self.node.keys, empty, until=EXPIRES_AT)

    def remember(self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """State in which later rows look back at these, which may be in any order."""
        return self.add_columns(state, in_order(rows), batch)[0]

    def add_columns(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch, *, keep: bool = True
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows of a batch with the columns of this part; with `keep`, later rows look back at them."""
        if rows.is_empty():
            names = [*self._framed, *self.node.row_numbers]
            return self._expire(state, batch), without_rows(self.node, rows, names)
        new = self._to_partials(frame_columns(self.node, rows, self._no_rows.columns))
        stored = self._table.read(state, rows.select(self.node.keys).unique())
        running = self._run(join_rows(self.node, stored, new))
        state = self._keep(state, running, batch) if keep else state
        return state, rows.hstack(self._results(running))

    def _partial_exprs(self) -> list[pl.Expr]:
        numbers = [expr for name in self.node.row_numbers for expr in count().partials(name, pl.Null())]
        return [*(expr for name in self._framed for expr in partials_of(self.node, name)), *numbers]

    def _to_partials(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row as the partials of it alone."""
        number = pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW_NUMBER)
        alone = rows.with_columns(number).rolling(ROW_NUMBER, period="1i").agg(self._partial_exprs())
        return pl.concat([rows.select(*self.node.keys, ROW_TIME), alone.drop(ROW_NUMBER)], how="horizontal")

    def _run(self, partials: pl.DataFrame) -> pl.DataFrame:
        """The partials of all rows up to each."""
        exprs = [expr for name in self._framed for expr in self._running_exprs(name)]
        exprs += [expr for name in self.node.row_numbers for expr in count().running(name, pl.Null())]
        running = partials.with_columns(expr.over(GROUP) for expr in exprs)
        for name, dtype in self._no_partials.schema.items():
            if isinstance(dtype, pl.List) and (partials[name].list.len() > 0).any():
                running = running.with_columns(_join_lists(partials, name))
        return running

    def _running_exprs(self, name: str) -> list[pl.Expr]:
        function = self.node.framed[name]
        if isinstance(function, Reduction):
            return function.running(name, self.node.type_of(function))
        return [pl.col(f"{name}.v").first()] if function.kind == "first" else []

    def _results(self, running: pl.DataFrame) -> pl.DataFrame:
        framed = self._place(running, self.node.frame) if self._framed else running
        results = [result_of(self.node, name) for name in self._framed]
        numbers = [count().result(name, pl.Null()) for name in self.node.row_numbers]
        return pl.concat(
            [
                framed.filter(IS_NEW).select(results),
                self._place(running, _UP_TO_ROW).filter(IS_NEW).select(numbers),
            ],
            how="horizontal",
        )

    def _place(self, running: pl.DataFrame, frame: Frame) -> pl.DataFrame:
        """For each row the partials at the end of its frame: those of the row itself, of the one before, or
        of the last of its time.
        """
        nothing = self._partials_of_nothing
        columns = [pl.col(name) for name in nothing.columns]
        if frame.upper < 0:
            is_first = pl.col(ROW_TIME).shift(1).over(GROUP).is_null()
            running = running.with_columns(
                pl.when(is_first)
                .then(pl.lit(nothing[name]).first())
                .otherwise(pl.col(name).shift(1).over(GROUP))
                .alias(name)
                for name in nothing.columns
            )
        if frame.unit == "rows":
            return running
        peers = [GROUP, ROW_TIME]
        return running.with_columns(
            (column.first() if frame.upper < 0 else column.last()).over(peers) for column in columns
        )

    def _keep(self, state: SlotState, running: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """State with the partials of each key's last row."""
        last = running.with_columns(
            expiry_of_key(self.node).alias(EXPIRES_AT), pl.lit(batch.version, pl.Int64).alias(STATE_VERSION)
        ).unique(self.node.keys, keep="last", maintain_order=True)
        state = self._table.append(state, last.select(self._table.empty.columns), since=batch.old_watermark)
        return self._expire(state, batch)

    def _expire(self, state: SlotState, batch: OrderedBatch) -> SlotState:
        return state if self.node.ttl is None else self._table.expire(state, batch.watermark)


def _join_lists(partials: pl.DataFrame, name: str) -> pl.Series:
    """For each row the values in lists of all rows of its group up to it.
    Few rows have any: floats that are too small or too large for exact sums.
    """
    numbered = partials.select(GROUP, name).with_row_index(ROW_NUMBER)
    bags = numbered.filter(pl.col(name).list.len() > 0)
    values = bags.explode(name).rename({ROW_NUMBER: BAG_ROW})
    touched = numbered.drop(name).join(values, on=GROUP, how="inner", maintain_order="left_right")
    joined = (
        touched.filter(pl.col(BAG_ROW) <= pl.col(ROW_NUMBER))
        .group_by(ROW_NUMBER, maintain_order=True)
        .agg(pl.col(name))
    )
    empty = pl.lit([], partials.schema[name])
    return (
        numbered.select(ROW_NUMBER)
        .join(joined, on=ROW_NUMBER, how="left", maintain_order="left")
        .select(pl.col(name).fill_null(empty))[name]
    )
