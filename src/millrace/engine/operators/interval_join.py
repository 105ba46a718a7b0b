"""Operator `interval_join`: pairs of rows with the same key whose times are not far apart.

Rows of both sides are kept until no partner can come any more (`_until`): a left row at `t` until the
watermark is `t + upper`, a right row until it is past `t - lower`. A row that none has met by then is shown
alone, where the join asks.

Example, within ("-1s", "5s"), a left row at 10 s:

    right row at   8 s   9 s   14 s   15 s
    pair           no    yes   yes    no

15 s is not less than 10 s + 5 s, so at a watermark of 15 s the left row goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import panes
from millrace.durations import BEFORE_ALL
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, divide_panes, number_pairs
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.graph.build.join import SIDE_COLUMNS, IntervalJoin
from millrace.values.columns import (
    COPY_NUMBER,
    EXPIRES_AT,
    OFFSET,
    PARTNER_TIME,
    RIGHT_SUFFIX,
    ROW_TIME,
    SOURCE,
)

LEFT, RIGHT = SIDE_COLUMNS
ROWS, MATCHED = "rows", "met"
"""State tables: the rows of both sides, and which of them have met a partner."""
ROW_ID = (SOURCE, OFFSET, COPY_NUMBER)
"""With the key, what tells rows apart in every slot: where they come from,
and which of those that a step made of one row.
"""


@dataclass(frozen=True, eq=False)
class IntervalJoinOperator:
    """Joins rows of two sides by their times.
    Pairs are shown as soon as both rows are there, rows without a partner when none can come.
    """

    operator: Operator
    node: IntervalJoin

    @cached_property
    def rows(self) -> OrderedRows:
        """How rows are judged: as rows in order are, though none waits."""
        return OrderedRows(self.operator, (ROW_TIME, SOURCE, OFFSET, *SIDE_COLUMNS))

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        """No rows that are kept: `_until` is the watermark at which nothing can come for them any more."""
        empty, number = self.node.inputs[0].schema.to_frame(), pl.lit(0, pl.Int64)
        return empty.select(
            *self.node.keys,
            number.alias(ROW_TIME),
            *SIDE_COLUMNS,
            number.alias(EXPIRES_AT),
            *[number.alias(c) for c in ROW_ID],
        ).clear()

    @cached_property
    def _empty_matched(self) -> pl.DataFrame:
        return self._empty_rows.select(*self.node.keys, *ROW_ID, EXPIRES_AT)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, join them with those that are kept and with each other, show rows that no
        partner can meet any more.
        """
        operator_id = self.operator.id
        saved = state.values.get(operator_id) or {"progress": None, "time": BEFORE_ALL}
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        rows, late = self.rows.judge(progress.load_rows(blocks))
        since, time = saved["time"], progress.watermark
        new = self._number_rows(rows)
        stored = self._read_unexpired(state, ROWS, since)
        pairs, matched = self._join_new(stored, new)
        is_pending = pl.col(EXPIRES_AT) > time
        state = state.append(operator_id, ROWS, new.filter(is_pending), _layout_since(since))
        unmatched = self._unmatched(
            pl.concat([stored, new]).filter(~is_pending),
            pl.concat([self._read_unexpired(state, MATCHED, since), matched]),
        )
        state = state.append(operator_id, MATCHED, matched.filter(is_pending), _layout_since(since))
        emitted = self._pairs_to_panes(pl.concat([pairs, unmatched]) if unmatched.height else pairs)
        state = state.expire(operator_id, ROWS, time).expire(operator_id, MATCHED, time)
        shown, changes = divide_panes(self.operator, emitted)
        return OperatorResult(
            state.with_values(operator_id, {"progress": progress.after.to_json(), "time": time}),
            progress.output_watermark,
            shown,
            changes,
            late,
            progress,
        )

    def _read_unexpired(self, state: SlotState, table: str, since: int) -> pl.DataFrame:
        """What of a table has not expired."""
        empty = self._empty_rows if table == ROWS else self._empty_matched
        frames = [
            chunk.frame for chunk in state.table(self.operator.id, table).chunks if chunk.max_end > since
        ]
        return pl.concat([empty, *frames]).filter(pl.col(EXPIRES_AT) > since)

    def _number_rows(self, rows: pl.DataFrame | None) -> pl.DataFrame:
        if rows is None:
            return self._empty_rows
        left = pl.col(ROW_TIME) + self.node.upper
        until = (
            pl.when(pl.col(LEFT).is_not_null()).then(left).otherwise(pl.col(ROW_TIME) - self.node.lower + 1)
        )
        number = pl.int_range(pl.len(), dtype=pl.Int64).over(SOURCE, OFFSET)
        return rows.select(
            *self.node.keys,
            ROW_TIME,
            *SIDE_COLUMNS,
            until.alias(EXPIRES_AT),
            SOURCE,
            OFFSET,
            number.alias(COPY_NUMBER),
        )

    def _join_new(self, stored: pl.DataFrame, new: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """New rows beside their partners, kept or new; and which rows have met one."""
        no_pairs = self._pair_sides(stored.clear(), new.clear())
        if new.is_empty():
            return no_pairs.select(self._pair_columns), self._empty_matched
        keys = list(self.node.keys)
        same_keys = stored.join(new.select(keys).unique(), on=keys, how="semi")
        pairs = pl.concat(
            [no_pairs, self._pair_sides(new, pl.concat([same_keys, new])), self._pair_sides(same_keys, new)]
        )
        id_columns = [*keys, *ROW_ID, EXPIRES_AT]
        matched = [
            pairs.select(pl.col(c if c in keys else f"{c}{side}").alias(c) for c in id_columns)
            for side in ("", RIGHT_SUFFIX)
        ]
        return pairs.select(self._pair_columns), pl.concat(
            matched
        ).unique() if self.node.is_outer else self._empty_matched

    def _pair_sides(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The rows of the left side in one frame beside those of the right side
        in another, within the bounds.
        """
        left_rows = left.filter(pl.col(LEFT).is_not_null()).drop(RIGHT)
        right_rows = right.filter(pl.col(RIGHT).is_not_null()).drop(LEFT)
        distance = pl.col(PARTNER_TIME) - pl.col(ROW_TIME)
        pairs = left_rows.join(right_rows, on=list(self.node.keys), how="inner", maintain_order="left_right")
        return pairs.filter((distance >= self.node.lower) & (distance < self.node.upper))

    @cached_property
    def _pair_columns(self) -> list[str]:
        return [*self.node.keys, LEFT, RIGHT, ROW_TIME, PARTNER_TIME]

    def _unmatched(self, expired: pl.DataFrame, matched: pl.DataFrame) -> pl.DataFrame:
        """Of rows that no partner can meet any more, those that none has met, if they are wanted."""
        is_wanted = [
            pl.col(side).is_not_null()
            for side, mode in ((LEFT, "left"), (RIGHT, "right"))
            if self.node.how in (mode, "full")
        ]
        unmatched = expired.filter(pl.any_horizontal(is_wanted or [pl.lit(value=False)])).join(
            matched, on=[*self.node.keys, *ROW_ID], how="anti", nulls_equal=True
        )
        return (
            unmatched.sort(ROW_TIME, *ROW_ID)
            .with_columns(pl.lit(None, pl.Int64).alias(PARTNER_TIME))
            .select(self._pair_columns)
        )

    def _pairs_to_panes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Pairs as panes: from the earlier row to just after the later one."""
        start, end = pl.min_horizontal(ROW_TIME, PARTNER_TIME), pl.max_horizontal(ROW_TIME, PARTNER_TIME)
        shown = rows.select(
            *self.node.keys,
            *self.node.output_exprs,
            end.alias("event_time"),
            start.alias("window_start"),
            (end + 1).alias("window_end"),
            *panes.shown_once(),
        )
        return number_pairs(shown, self.node.schema)


def _layout_since(since: int) -> Layout:
    until = pl.col(EXPIRES_AT)
    return Layout(until, until, lambda frame: frame.filter(until > since))
