"""Part of the operator `over`: frames of so much time.

Rows are kept until the watermark has passed them by the length of the frame. Rows of the same time are in
each other's frames: they are released together, as the watermark passes all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.engine.operators.over_frames import (
    add_frames,
    frame_columns,
    framed_columns,
    in_order,
    join_rows,
    kept_schema,
    without_rows,
)
from millrace.engine.ordered_rows import OrderedBatch
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import EXPIRES_AT, ROW_TIME

RECENT_ROWS = "recent_rows"
"""State table: the rows that are in the frame of a row that may still come."""


@dataclass(frozen=True, eq=False)
class RowsInRange:
    """Columns from the rows not longer ago than the frame is long."""

    operator: Operator
    node: Over

    @staticmethod
    def is_needed(node: Over) -> bool:
        """Whether frames are bounded by time."""
        return bool(node.framed) and node.frame.unit == "range" and node.frame.lower is not None

    @cached_property
    def _empty(self) -> pl.DataFrame:
        return kept_schema(self.node, framed_columns(self.node))

    def remember(self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """State in which later rows look back at these, which may be in any order."""
        return self.add_columns(state, in_order(rows), batch)[0]

    def add_columns(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch, *, keep: bool = True
    ) -> tuple[SlotState, pl.DataFrame]:
        """The rows of a batch with the columns of this part; with `keep`, later rows look back at them."""
        if rows.is_empty():
            expired = state.expire(self.operator.id, RECENT_ROWS, batch.watermark)
            return expired, without_rows(self.node, rows, self.node.framed)
        new = frame_columns(self.node, rows, framed_columns(self.node))
        stored = self._read(state, rows.select(self.node.keys).unique(), batch.old_watermark)
        joined = join_rows(self.node, stored, new)
        state = self._keep(state, new, batch) if keep else state
        framed = self.node.framed
        return state, rows.hstack(add_frames(self.node, joined, framed).select(*framed))

    def _read(self, state: SlotState, keys: pl.DataFrame, since: int) -> pl.DataFrame:
        """The rows of some keys that may be in the frame of a row from now on."""
        table = state.table(self.operator.id, RECENT_ROWS)
        frames = [
            chunk.frame.filter(pl.col(EXPIRES_AT) > since).join(
                keys, on=keys.columns, how="semi", nulls_equal=True, maintain_order="left"
            )
            for chunk in table.chunks
            if chunk.max_end > since
        ]
        return pl.concat([self._empty, *frames])

    def _keep(self, state: SlotState, new: pl.DataFrame, batch: OrderedBatch) -> SlotState:
        """State with the new rows, and without those that are in no later frame."""
        lower = self.node.frame.lower or 0
        expires = pl.col(EXPIRES_AT)
        kept = new.with_columns((pl.col(ROW_TIME) - lower + 1).alias(EXPIRES_AT)).filter(
            expires > batch.watermark
        )
        layout = Layout(expires, expires, lambda frame: frame.filter(expires > batch.old_watermark))
        state = state.append(self.operator.id, RECENT_ROWS, kept.select(self._empty.columns), layout)
        return state.expire(self.operator.id, RECENT_ROWS, batch.watermark)
