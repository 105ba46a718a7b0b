"""Operator `over` with a lateness: a late row corrects the rows around it.

Rows that may still be corrected are open: they are kept whole, with the columns that were shown beside them.
When rows come, the columns of all open rows of their keys are computed anew, and where they differ from what
was shown, the row is taken back and shown again. When the watermark has passed a row by the lateness, nothing
can change it: then it is handed to the parts of the operator `over`, which keep what later rows look back at,
as if rows had only now been taken in order.

Example, `over(before=lag("v"), lateness="10s")`, one key; the row at 12 s comes late:

    watermark   rows       open before   shown
    16 s        10 s 15 s  -             + 10 s before=null, + 15 s before=v(10 s)
    20 s        12 s       10 s 15 s     + 12 s before=v(10 s), - 15 s before=v(10 s), + 15 s before=v(12 s)
    24 s        -          all three     nothing; 10 s and 12 s are open no more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.contract import OperatorResult, empty_panes, number_pairs
from millrace.engine.operators.over import past_parts
from millrace.engine.operators.over_frames import (
    add_groups,
    lead_columns,
    released_rows,
    row_schema,
    to_panes,
    waiting_rows,
)
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import (
    DUE,
    EXPIRES_AT,
    GROUP,
    IS_NEW,
    IS_UNCHANGED,
    OLD_PREFIX,
    ROW_TIME,
    STATE_VERSION,
)

OPEN_ROWS = "open_rows"
"""State table: the rows that may still be corrected, with the columns shown beside them."""
TIMING = "timing"
"""Column of panes: whether a row was shown on time, or came or was corrected late."""


@dataclass(frozen=True, eq=False)
class CorrectedOverOperator:
    """Rows with columns computed from the rows around them, as a changelog."""

    operator: Operator
    node: Over

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait until the watermark has passed them; late ones do not wait."""
        return waiting_rows(self.operator, self.node)

    @cached_property
    def _table(self) -> KeyedTable:
        shown = {name: self.node.schema[name] for name in (*self.node.columns, TIMING)}
        old = {f"{OLD_PREFIX}{name}": dtype for name, dtype in shown.items()}
        numbers = [pl.lit(0, pl.Int64).alias(name) for name in (EXPIRES_AT, DUE, STATE_VERSION)]
        return KeyedTable(
            self.operator.id,
            OPEN_ROWS,
            self.node.keys,
            pl.DataFrame(schema={**row_schema(self.node), **old}).with_columns(numbers),
            value=ROW_TIME,
            due=DUE,
            until=EXPIRES_AT,
            has_lists=True,
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, compute the open rows of their keys anew, show what differs, close rows."""
        batch = self.rows.take(state, body, blocks)
        closing = self._closing(batch)
        open_rows = self._join_open(batch.state, released_rows(self.node, batch), closing)
        if open_rows.is_empty():
            return batch.result(self._close(batch.state, open_rows, closing), empty_panes(self.node))
        rows = self._with_columns(batch.state, open_rows, closing).with_columns(self._judge(batch))
        return batch.result(self._close(batch.state, rows, closing), self._changes(rows))

    def _closing(self, batch: OrderedBatch) -> OrderedBatch:
        """The batch as far as it is about rows that nothing can correct any more."""
        late = self.node.lateness
        watermark = END_OF_STREAM if batch.is_ended else batch.watermark - late
        return replace(batch, old_watermark=batch.old_watermark - late, watermark=watermark)

    def _join_open(self, state: SlotState, new: pl.DataFrame, closing: OrderedBatch) -> pl.DataFrame:
        """New rows among the open ones of their keys, and the open ones of keys of which some close."""
        keys, is_new = new.select(self.node.keys).unique(), pl.lit(value=True)
        stored = self._table.read_due(state, keys, closing.old_watermark, closing.watermark)
        both = [stored.with_columns((~is_new).alias(IS_NEW)), new.with_columns(is_new.alias(IS_NEW))]
        return pl.concat(both, how="diagonal").sort(ORDER, maintain_order=True)

    def _with_columns(self, state: SlotState, rows: pl.DataFrame, closing: OrderedBatch) -> pl.DataFrame:
        """Rows with the columns of now: from the closed rows that the parts keep, and from each other."""
        for part in past_parts(self.operator, self.node):
            _, rows = part.add_columns(state, rows, closing, keep=False)
        return add_groups(self.node, rows).with_columns(lead_columns(self.node)).drop(GROUP)

    def _judge(self, batch: OrderedBatch) -> list[pl.Expr]:
        """Whether a row was shown as it is now, and whether it is late: it came behind the watermark, or
        changed after it was shown.
        """
        equal = [pl.col(name).eq_missing(pl.col(f"{OLD_PREFIX}{name}")) for name in self.node.columns]
        is_unchanged = ~pl.col(IS_NEW) & pl.all_horizontal(equal)
        is_on_time = pl.col(IS_NEW) & (pl.col(ROW_TIME) >= batch.old_watermark)
        timing = (
            pl.when(is_unchanged)
            .then(pl.col(f"{OLD_PREFIX}{TIMING}"))
            .otherwise(pl.when(is_on_time).then(pl.lit("on_time")).otherwise(pl.lit("late")))
        )
        return [is_unchanged.alias(IS_UNCHANGED), timing.alias(TIMING)]

    def _close(self, state: SlotState, rows: pl.DataFrame, closing: OrderedBatch) -> SlotState:
        """State with the open rows as they are shown now, and with what is kept of those that have closed."""
        is_closed = pl.col(ROW_TIME) < closing.watermark
        closed = rows.filter(is_closed).select(row_schema(self.node).names())
        for part in past_parts(self.operator, self.node):
            state, _ = part.add_columns(state, closed, closing)
        state = self._table.expire(state, closing.watermark)
        if closed.height == rows.height:
            return state
        closes_at = pl.col(ROW_TIME) + 1
        open_rows = rows.filter(~is_closed).with_columns(
            *(pl.col(name).alias(f"{OLD_PREFIX}{name}") for name in (*self.node.columns, TIMING)),
            closes_at.alias(EXPIRES_AT),
            closes_at.alias(DUE),
            pl.lit(closing.version, pl.Int64).alias(STATE_VERSION),
        )
        kept = open_rows.select(self._table.empty.columns)
        return self._table.append(state, kept, since=closing.old_watermark)

    def _changes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What is taken back, and what is shown in its place or for the first time."""
        changed = rows.filter(~pl.col(IS_UNCHANGED))
        shown = (*self.node.columns, TIMING)
        old = changed.filter(~pl.col(IS_NEW)).with_columns(
            pl.col(f"{OLD_PREFIX}{name}").alias(name) for name in shown
        )
        history = {"timing": pl.col(TIMING), "final": pl.lit(value=False)}
        retracted = to_panes(self.node, old, **history, op=pl.lit(panes.RETRACT))
        added = to_panes(self.node, changed, **history)
        return number_pairs(pl.concat([retracted, added]), self.node.schema)
