"""Operator `over` with a lateness: a late row corrects the rows around it.

Rows that may still be corrected are open: they are kept whole, with the columns that were shown beside them.
A row that comes after all rows of its key changes none of them, and where its columns look back by a number
of rows, the last rows of the key are all that it needs. For any other row the columns of all open rows of its
key are computed anew, and where they differ from what was shown, a row is taken back and shown again.

When the watermark has passed a row by the lateness, nothing can change it: then it is handed to the parts of
the operator `over`, which keep what later rows look back at, as if rows had only now been taken in order.

Example, `over(before=lag("v"), lateness="10s")`, one key; the row at 12 s comes late:

    watermark   rows       open before   shown
    16 s        10 s 15 s  -             + 10 s before=null, + 15 s before=v(10 s)
    20 s        12 s       10 s 15 s     + 12 s before=v(10 s), - 15 s before=v(10 s), + 15 s before=v(12 s)
    24 s        -          all three     nothing; 10 s and 12 s are open no more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce

import polars as pl

from millrace import panes
from millrace.aggregates import ORDER
from millrace.durations import END_OF_STREAM
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, empty_panes, number_pairs
from millrace.engine.operators.over import Part, past_parts
from millrace.engine.operators.over_frames import (
    add_groups,
    in_order,
    lead_columns,
    released_rows,
    row_schema,
    to_panes,
    waiting_rows,
)
from millrace.engine.operators.over_open_rows import OpenRows, row_ids
from millrace.engine.operators.over_rows import LAST_ROWS, RowsBefore
from millrace.engine.ordered_rows import OrderedBatch, OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over
from millrace.values.columns import (
    EXPIRES_AT,
    GROUP,
    IS_NEW,
    IS_UNCHANGED,
    OLD_PREFIX,
    ROW_ID,
    ROW_TIME,
    STATE_VERSION,
)

NEWEST_ROWS = "newest_rows"
"""State table: the last rows of each key, open or not; as many as a row that comes after them looks back at.
"""
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
    def _parts(self) -> list[Part]:
        """The parts that look back, at rows that nothing can correct."""
        return past_parts(self.operator, self.node)

    @cached_property
    def _newest(self) -> RowsBefore | None:
        """What rows look back at that come after all others of their key; None where that is more than the
        last rows, or where they change earlier ones.
        """
        parts = self._parts
        looks_back = not self.node.leads and all(isinstance(part, RowsBefore) for part in parts)
        return RowsBefore(self.operator, self.node, NEWEST_ROWS) if looks_back else None

    @cached_property
    def _closed(self) -> RowsBefore:
        """The last rows of each key that nothing can correct."""
        return RowsBefore(self.operator, self.node, LAST_ROWS)

    @cached_property
    def _shown(self) -> dict[str, pl.DataType]:
        """What is shown beside a row, and taken back with it."""
        return {name: self.node.schema[name] for name in (*self.node.columns, TIMING)}

    @cached_property
    def _open(self) -> OpenRows:
        """The rows that may still be corrected."""
        old = {f"{OLD_PREFIX}{name}": dtype for name, dtype in self._shown.items()}
        numbers = [pl.lit(0, pl.Int64).alias(name) for name in (ROW_ID, EXPIRES_AT, STATE_VERSION)]
        empty = pl.DataFrame(schema={**row_schema(self.node), **old}).with_columns(numbers)
        return OpenRows(self.operator.id, empty)

    @cached_property
    def _nothing_shown(self) -> pl.DataFrame:
        """No rows, in the columns of open rows, those that are shown, and whether the row is new."""
        return self._open.empty.with_columns(
            *(pl.lit(None, dtype).alias(name) for name, dtype in self._shown.items()),
            pl.lit(value=True).alias(IS_NEW),
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, add those that come last, insert the others among the open rows of their
        keys, show what is new or differs, close rows.
        """
        batch = self.rows.take(state, body, blocks)
        closing = self._closing(batch)
        new = released_rows(self.node, batch).with_columns(row_ids(batch.version))
        last, others = self._divide(batch.state, new)
        state, appended = self._append(batch.state, last, batch)
        state, corrected = self._insert(state, others, batch, closing)
        some = [frame for frame in (appended, corrected) if frame.height] or [appended]
        changed = some[0] if len(some) == 1 else pl.concat(some, how="diagonal")
        return batch.result(self._close(state, changed, closing), self._changes(changed))

    def _closing(self, batch: OrderedBatch) -> OrderedBatch:
        """The batch as far as it is about rows that nothing can correct any more."""
        late = self.node.lateness
        watermark = END_OF_STREAM if batch.is_ended else batch.watermark - late
        return replace(batch, old_watermark=batch.old_watermark - late, watermark=watermark)

    def _divide(self, state: SlotState, new: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """New rows that come after all others of their keys, and the rest. A key of which nothing is at hand
        may have open rows all the same.
        """
        keys = list(self.node.keys)
        if self._newest is None or new.is_empty():
            return new.clear(), new
        first = new[[*keys, *ORDER]].unique(keys, keep="first", maintain_order=True)
        known = self._newest.read(state, first.select(keys))
        last = known.unique(keys, keep="last", maintain_order=True).select(*keys, *_OLD_ORDER)
        in_order = first.join(last, on=keys, nulls_equal=True).filter(_IS_AFTER_OLD).select(keys)
        if in_order.height in (0, first.height):
            return (new, new.clear()) if in_order.height else (new.clear(), new)
        appended = new.join(in_order, on=keys, how="semi", nulls_equal=True, maintain_order="left")
        return appended, new.join(in_order, on=keys, how="anti", nulls_equal=True, maintain_order="left")

    def _append(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows that come after all others of their keys, with their columns."""
        if self._newest is None:
            return state, self._nothing_shown
        state, shown = self._newest.add_columns(state, rows, batch)
        new = shown.with_columns(_IS_NEW, self._new_timing(batch).alias(TIMING))
        return state, new

    def _insert(
        self, state: SlotState, rows: pl.DataFrame, batch: OrderedBatch, closing: OrderedBatch
    ) -> tuple[SlotState, pl.DataFrame]:
        """Rows that come among the open ones of their keys: what is new or differs from what was shown."""
        if rows.is_empty():
            return state, self._nothing_shown
        keys, is_new = rows.select(self.node.keys).unique(), pl.lit(value=True)
        stored = self._open.read(state, keys, closing.old_watermark).with_columns((~is_new).alias(IS_NEW))
        both = pl.concat([stored, rows.with_columns(is_new.alias(IS_NEW))], how="diagonal")
        open_rows = in_order(both)
        judged = self._with_columns(state, open_rows, closing).with_columns(self._judge(batch))
        if self._newest is not None:
            state = self._newest.keep_last(state, self._closed.read(state, keys), open_rows, batch)
        return state, judged.filter(~pl.col(IS_UNCHANGED))

    def _with_columns(self, state: SlotState, rows: pl.DataFrame, closing: OrderedBatch) -> pl.DataFrame:
        """Rows with the columns of now: from the closed rows that the parts keep, and from each other."""
        for part in self._parts:
            _, rows = part.add_columns(state, rows, closing, keep=False)
        return add_groups(self.node, rows).with_columns(lead_columns(self.node)).drop(GROUP)

    def _judge(self, batch: OrderedBatch) -> list[pl.Expr]:
        """Whether a row was shown as it is now, and whether it is late: it came behind the watermark, or
        changed after it was shown.
        """
        equal = [pl.col(name).eq_missing(pl.col(f"{OLD_PREFIX}{name}")) for name in self.node.columns]
        is_unchanged = ~pl.col(IS_NEW) & pl.all_horizontal(equal)
        return [is_unchanged.alias(IS_UNCHANGED), self._timing(batch).alias(TIMING)]

    def _timing(self, batch: OrderedBatch) -> pl.Expr:
        return pl.when(IS_NEW).then(self._new_timing(batch)).otherwise(_LATE)

    def _new_timing(self, batch: OrderedBatch) -> pl.Expr:
        """The same for a row that is new."""
        return pl.when(pl.col(ROW_TIME) >= batch.old_watermark).then(_ON_TIME).otherwise(_LATE)

    @cached_property
    def _as_shown(self) -> list[pl.Expr]:
        """What is kept of a row that is shown: its columns of now, and until when they may change."""
        shown = [pl.col(name).alias(f"{OLD_PREFIX}{name}") for name in self._shown]
        return [*shown, (pl.col(ROW_TIME) + 1).alias(EXPIRES_AT)]

    def _close(self, state: SlotState, changed: pl.DataFrame, closing: OrderedBatch) -> SlotState:
        """State with the open rows as they are shown now, and with what is kept of those that have closed."""
        old, now = closing.old_watermark, closing.watermark
        columns = [*row_schema(self.node), ROW_ID]
        version = pl.lit(closing.version, pl.Int64).alias(STATE_VERSION)
        versions = changed.with_columns(*self._as_shown, version)[self._open.empty.columns]
        new = changed.filter(IS_NEW, pl.col(ROW_TIME) < now)[columns]
        closed = pl.concat([self._open.closing(state, old, now, columns), new])
        for part in self._parts:
            state = part.remember(state, closed, closing)
        return self._open.append(state, versions, closed_until=now)

    def _changes(self, changed: pl.DataFrame) -> pl.DataFrame:
        """What is taken back, and what is shown in its place or for the first time."""
        if changed.is_empty():
            return empty_panes(self.node)
        shown = to_panes(self.node, changed, **_HISTORY)
        if not changed[IS_NEW].all():
            old = changed.filter(~pl.col(IS_NEW)).with_columns(
                pl.col(f"{OLD_PREFIX}{name}").alias(name) for name in self._shown
            )
            shown = pl.concat([to_panes(self.node, old, **_HISTORY, op=_RETRACT), shown])
        return number_pairs(shown, self.node.schema)


def _is_after_old() -> pl.Expr:
    """Whether a row comes after another one, whose order is beside it."""

    def or_later(rest: pl.Expr, column: str) -> pl.Expr:
        other = pl.col(f"{OLD_PREFIX}{column}")
        return (pl.col(column) > other) | ((pl.col(column) == other) & rest)

    return reduce(or_later, reversed(ORDER), pl.lit(value=False))


_OLD_ORDER = [pl.col(column).alias(f"{OLD_PREFIX}{column}") for column in ORDER]
_IS_AFTER_OLD = _is_after_old()
_IS_NEW = pl.lit(value=True).alias(IS_NEW)
_ON_TIME, _LATE, _RETRACT = pl.lit("on_time"), pl.lit("late"), pl.lit(panes.RETRACT)
_HISTORY = {"timing": pl.col(TIMING), "final": pl.lit(value=False)}
