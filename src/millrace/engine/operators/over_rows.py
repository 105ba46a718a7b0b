"""Part of the operator `over`: `lag`, and frames of so many rows.

Of each key the last rows are kept, as many as the farthest look back needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.engine.keyed_table import KeyedTable
from millrace.engine.operators.over_frames import (
    add_frames,
    expiry_of_key,
    frame_columns,
    framed_columns,
    in_order,
    join_rows,
    kept_schema,
    without_rows,
)
from millrace.engine.ordered_rows import OrderedBatch
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import EXPIRES_AT, GROUP, ROW_TIME, STATE_VERSION

LAST_ROWS = "last_rows"
"""State table: the last rows of each key."""


@dataclass(frozen=True, eq=False)
class RowsBefore:
    """Columns from the rows just before a row."""

    operator: Operator
    node: Over
    table: str = LAST_ROWS

    @staticmethod
    def is_needed(node: Over) -> bool:
        """Whether a column looks back by a number of rows."""
        return bool(node.lags) or RowsBefore._has_frames(node)

    @staticmethod
    def _has_frames(node: Over) -> bool:
        return bool(node.framed) and node.frame.unit == "rows" and node.frame.lower is not None

    @cached_property
    def _columns(self) -> list[str]:
        lags = [str(lag.column) for lag in self.node.lags.values()]
        return [*lags, *(framed_columns(self.node) if self._has_frames(self.node) else [])]

    @cached_property
    def _length(self) -> int:
        """How many rows of each key are kept."""
        lower = -(self.node.frame.lower or 0) if self._has_frames(self.node) else 0
        return max([lower, *(lag.n for lag in self.node.lags.values())])

    @cached_property
    def _table(self) -> KeyedTable:
        empty = kept_schema(self.node, self._columns).with_columns(pl.lit(0, pl.Int64).alias(STATE_VERSION))
        return KeyedTable(
            self.operator.id, self.table, self.node.keys, empty, until=EXPIRES_AT, has_lists=True
        )

    def add_columns(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch, *, keep: bool = True
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows of a batch with the columns of this part; with `keep`, later rows look back at them."""
        if rows.is_empty():
            return self._expire(state, batch), without_rows(self.node, rows, self._names)
        stored = self.read(state, rows.select(self.node.keys).unique())
        joined = self._join(stored, rows)
        state = self._expire(self._keep(state, joined, batch), batch) if keep else state
        return state, rows.hstack(self._compute(joined, rows.height))

    def remember(self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """State in which later rows look back at these, which may be in any order."""
        if rows.is_empty():
            return self._expire(state, batch)
        time, keys = pl.col(ROW_TIME), self.node.keys
        last = (
            rows.filter(time >= time.top_k(self._length).min().over(keys)) if self._length else rows.clear()
        )
        stored = self.read(state, last.select(keys).unique())
        return self._expire(self._keep(state, self._join(stored, in_order(last)), batch), batch)

    def read(self, state: SlotState, keys: pl.DataFrame) -> pl.DataFrame:
        """The last rows of some keys, in order."""
        return self._table.read(state, keys)

    def keep_last(
        self, state: SlotState, earlier: pl.DataFrame, rows: pl.DataFrame, batch: OrderedBatch
    ) -> SlotState:
        """State in which the last of these rows are kept, whatever was kept of their keys before."""
        return self._keep(state, self._join(earlier, rows), batch)

    def _join(self, stored: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        return join_rows(self.node, stored, frame_columns(self.node, rows, self._columns))

    def _expire(self, state: SlotState, batch: OrderedBatch) -> SlotState:
        return state if self.node.ttl is None else self._table.expire(state, batch.watermark)

    @cached_property
    def _names(self) -> list[str]:
        return [*self.node.lags, *(self.node.framed if self._has_frames(self.node) else {})]

    @cached_property
    def _lags(self) -> list[pl.Expr]:
        return [
            pl.col(str(lag.column)).shift(lag.n).over(GROUP).alias(name)
            for name, lag in self.node.lags.items()
        ]

    def _compute(self, joined: pl.DataFrame, new: int) -> list[pl.Series]:
        """The columns of this part at the last rows, which are so many new ones."""
        if not self._has_frames(self.node):
            return joined.select(self._lags).tail(new).get_columns()
        lagged = joined.with_columns(self._lags)
        return add_frames(self.node, lagged, self.node.framed).select(self._names).get_columns()

    @cached_property
    def _is_last(self) -> pl.Expr:
        """Whether a row is one of the last of its key, as many as are kept."""
        return pl.int_range(pl.len(), 0, -1, dtype=pl.Int64).over(self.node.keys) <= self._length

    @cached_property
    def _expiry(self) -> pl.Expr:
        return expiry_of_key(self.node).alias(EXPIRES_AT)

    def _keep(self, state: SlotState, joined: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        if not self._length:
            return state
        last = joined.filter(self._is_last).with_columns(
            self._expiry, pl.lit(batch.version, pl.Int64).alias(STATE_VERSION)
        )
        kept = last[self._table.empty.columns]
        return self._table.append(state, kept, since=batch.old_watermark)
