"""Part of the operator `over`: `lead`. Rows wait for the rows after them.

A row goes on when each later row that it asks for is there, or can no longer come in time: when the watermark
has passed the row by `within`. Rows of a key go on in order, since a row never knows its later rows before
the rows before it do. What follows the operator must wait as long: see `Over.output_delay`.

Example, `lead("v", within="10s")`, one key:

    row at      10 s    12 s    30 s
    v           1       2       3
    after       2       null    null
    goes on at  12 s    22 s    40 s      of the watermark
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.over_frames import join_rows, lead_columns, row_schema, without_rows
from millrace.engine.ordered_rows import OrderedBatch
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import DUE, EXPIRES_AT, GROUP, HOLDS, ROW_TIME, STATE_VERSION

FOLLOWED_ROWS = "followed_rows"
"""State table: the rows of a key that wait for later ones."""


@dataclass(frozen=True, eq=False)
class FollowingRows:
    """Columns from later rows."""

    operator: Operator
    node: Over

    @cached_property
    def _empty(self) -> pl.DataFrame:
        """No rows with the columns that they have when they come here."""
        known = {name: self.node.schema[name] for name in self.node.columns if name not in self.node.leads}
        return pl.DataFrame(schema={**row_schema(self.node), **known})

    @cached_property
    def _table(self) -> KeyedTable:
        number = pl.lit(0, pl.Int64)
        empty = self._empty.with_columns(number.alias(c) for c in (EXPIRES_AT, DUE, STATE_VERSION))
        return KeyedTable(
            self.operator.id,
            FOLLOWED_ROWS,
            self.node.keys,
            empty,
            value=ROW_TIME,
            due=DUE,
            until=EXPIRES_AT,
            has_lists=True,
        )

    def add_columns(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows that go on, with the columns of this part; the others wait."""
        keys, deadline = rows.select(self.node.keys).unique(), batch.deadline
        waiting = self._table.read_due(state, keys, batch.old_watermark, deadline)
        joined = join_rows(self.node, waiting, rows.select(self._empty.columns))
        if joined.is_empty():
            return self._table.expire(state, batch.watermark), without_rows(
                self.node, joined, self.node.leads
            )
        known = joined.with_columns(*lead_columns(self.node), self._is_known(deadline))
        state = self._keep(state, known, batch)
        passed = known.filter(HOLDS)
        return self._table.expire(state, batch.watermark), passed

    def _is_known(self, deadline: int) -> pl.Expr:
        """Whether all later rows are there, or can no longer come in time."""
        time = pl.col(ROW_TIME)
        return pl.all_horizontal(
            time.shift(-lead.n).over(GROUP).is_not_null() | (time + lead.within <= deadline)
            for lead in self.node.leads.values()
        ).alias(HOLDS)

    def _keep(self, state: SlotState, known: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """The rows that wait; a tombstone of each key whose rows have all gone on."""
        expiry = pl.col(ROW_TIME) + self.node.output_delay
        version = pl.lit(batch.version, pl.Int64).alias(STATE_VERSION)
        stamped = known.with_columns(expiry.alias(EXPIRES_AT), expiry.alias(DUE), version)
        waiting = stamped.filter(~pl.col(HOLDS))
        gone = stamped.filter(pl.col(HOLDS).all().over(self.node.keys)).unique(
            self.node.keys, keep="last", maintain_order=True
        )
        tombstones = gone.with_columns(
            pl.lit(None, pl.Int64).alias(ROW_TIME), pl.lit(END_OF_STREAM, pl.Int64).alias(DUE)
        )
        columns = self._table.empty.columns
        changed = pl.concat([waiting.select(columns), tombstones.select(columns)])
        return self._table.append(state, changed, since=batch.old_watermark)
