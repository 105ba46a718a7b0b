"""Operator `over`: every row goes on beside columns computed from the rows of its key around it.

Rows are taken in order, so whatever a row looks back at has come before it. What later rows look back at is
all that is kept, by four parts, each of which adds its columns and keeps its own table:

    part                            columns                              keeps
    over_rows.RowsBefore            lag, frames of so many rows          the last rows of each key
    over_range.RowsInRange          frames of so much time               rows until the watermark has passed
                                                                         them by the range
    over_running.RunningTotals      frames without a beginning, numbers  one running aggregate per key
    over_lead.FollowingRows         lead                                 rows that wait for later ones

Example, `over(rows=2, before=lag("v"), total=sum("v"))`, rows of one key:

    row at   10 s    12 s    15 s
    v        1       2       4
    before   null    1       2
    total    1       3       6

What is kept then is the row at 15 s alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, number_pairs
from millrace.engine.operators.over_lead import FollowingRows
from millrace.engine.operators.over_range import RowsInRange
from millrace.engine.operators.over_rows import RowsBefore
from millrace.engine.operators.over_running import RunningTotals
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import ROW_TIME


@dataclass(frozen=True, eq=False)
class OverOperator:
    """Rows with columns computed from the rows around them."""

    operator: Operator
    node: Over

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait until the watermark has passed them."""
        keys = self.node.keys
        return OrderedRows(self.operator, (*ORDER, *(c for c in self.node.row_columns if c not in keys)))

    @cached_property
    def _empty(self) -> pl.DataFrame:
        """No rows, as they are released."""
        schema = self.node.inputs[0].schema
        columns = {name: schema[name] for name in (*self.node.keys, *self.node.row_columns)}
        return pl.DataFrame(schema={**columns, **dict.fromkeys(ORDER, pl.Int64)})

    @cached_property
    def _parts(self) -> list[RowsBefore | RowsInRange | RunningTotals | FollowingRows]:
        """What adds columns, in this order: rows that wait for later ones have all the others by then."""
        parts = (RowsBefore, RowsInRange, RunningTotals, FollowingRows)
        return [part(self.operator, self.node) for part in parts if part.is_needed(self.node)]

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, add their columns, keep what later rows need."""
        batch = self.rows.take(state, body, blocks)
        released = self._empty if batch.rows is None else batch.rows.select(self._empty.columns)
        rows = released.sort(ORDER, maintain_order=True)  # a step may have made several rows of one record
        state = batch.state
        for part in self._parts:
            state, rows = part.add_columns(state, rows, batch)
        return batch.result(state, self._to_panes(rows))

    def _to_panes(self, rows: pl.DataFrame) -> pl.DataFrame:
        time = pl.col(ROW_TIME)
        shown = rows.sort(ORDER, maintain_order=True).select(
            *self.node.row_columns,
            *self.node.columns,
            time.alias("event_time"),
            time.alias("window_start"),
            (time + 1).alias("window_end"),
            *panes.shown_once(),
        )
        return number_pairs(shown, self.node.schema)
