"""Aggregation over panes: values and retractions come in, so that late rows upstream correct what was shown
downstream.

What is kept is a bag of rows per key and window, each with a weight: how often it was added less how often it
was taken back. Rows of weight 0 are gone. Where all aggregates are sums, the sums are kept in place of the
rows.

Invariant: the bag holds what the operators before this one show at this moment, whatever they showed in
between.

Example, vehicles counted per cell, one window. Vehicle v was last seen in cell A, then a late row moves it to
B:

    batch  comes in            bag of A   bag of B   shown
    1      + v in A            v: 1       -          A: 1
    2      - v in A, + v in B  -          v: 1       A: withdrawn, B: 1
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.durations import BEFORE_ALL
from millrace.engine.changelog import add_up, repeat_by_weight, upstream_watermark, weight_of_change
from millrace.engine.exchange import Block, Body
from millrace.engine.operators import emit
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.emit import PaneValues, WindowShape
from millrace.engine.operators.slices import end_range, grid_of
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import END, OFFSET, PARTIAL_ROWS, ROW_TIME, SOURCE, START, WEIGHT
from millrace.windows import FOREVER


@dataclass(frozen=True, eq=False)
class ChainedOperator:
    """The operator of a later aggregation.
    Its state is a bag of rows per key and window, or their sums where those suffice.
    """

    operator: Operator

    @cached_property
    def shape(self) -> WindowShape:
        """Its columns and those of its panes."""
        return WindowShape(self.operator)

    @cached_property
    def identity_columns(self) -> list[str]:
        """The columns in which two rows must agree to cancel each other."""
        ordered = ["event_time"] if self.shape.partials.is_ordered else []
        return [
            *self.shape.group_columns,
            *[c for c in (*self.shape.partials.input_columns, *ordered) if c not in self.shape.group_columns],
        ]

    @cached_property
    def layout(self) -> Layout:
        """How the bag, or the sums, are kept."""
        return Layout(pl.col(END), pl.col(END), self._merge)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: changes are applied, the watermark moves, panes fire, expired state is dropped."""
        operator_id, horizon = self.operator.id, self.operator.horizon
        old_watermark: int | None = state.values.get(operator_id)
        watermark = upstream_watermark(self.operator, body, old_watermark)
        net = self._net_rows(blocks)
        emitted, changes, counters = self._fire(state, net, old_watermark, watermark)
        state = state.append(operator_id, "rows", net, self.layout)
        state = state.append(operator_id, "panes", counters, self.shape.counter_layout)
        if watermark is not None:
            state = state.expire(operator_id, "rows", watermark - horizon).expire(
                operator_id, "panes", watermark - horizon
            )
        return OperatorResult(state.with_values(operator_id, watermark), watermark, emitted, changes)

    def _net_rows(self, blocks: list[Block]) -> pl.DataFrame:
        """What the batch's changes come to: rows with their weight, those that cancel left out;
        as sums, where sums suffice.
        """
        frames = [self._assign_windows(block.frame) for block in blocks]
        if not frames:
            return self._empty_rows
        rows = add_up(pl.concat(frames), self.identity_columns)
        return self._to_partials(rows) if self.shape.partials.is_additive else rows

    def _assign_windows(self, frame: pl.DataFrame) -> pl.DataFrame:
        sign = weight_of_change()
        if self.operator.aggregation.same_window:
            window = pl.col("window_start").alias(START), pl.col("window_end").alias(END)
            return frame.with_columns(sign, *window).select(*self.identity_columns, WEIGHT)
        if self.operator.aggregation.windowing.is_unwindowed:
            start, end = (pl.lit(time, pl.Int64) for time in FOREVER)
            return frame.with_columns(sign, start.alias(START), end.alias(END)).select(
                *self.identity_columns, WEIGHT
            )
        grid = grid_of(self.operator.aggregation.windowing)
        at = pl.col("event_time")
        ends = pl.int_ranges(grid.first_end(at), grid.last_end(at) + 1, grid.window.every).alias(END)
        return frame.with_columns(sign, ends).explode(END).select(*self.identity_columns, WEIGHT)

    @cached_property
    def _empty_rows(self) -> pl.DataFrame:
        number = pl.lit(0, pl.Int64)
        rows = (
            self.operator.node.inputs[0]
            .schema.to_frame()
            .with_columns(number.alias(c) for c in (START, END, WEIGHT))
        )
        rows = rows.clear().select(*self.identity_columns, WEIGHT)
        return self._to_partials(rows) if self.shape.partials.is_additive else rows

    def _to_partials(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Additive partials of rows with weights."""
        if self.shape.partials.counts_only:
            return rows.select(
                *self.shape.partials.keys,
                *self.shape.window_columns,
                *[pl.col(WEIGHT).alias(column) for column in self.shape.partials.value_columns],
            )
        retracted = rows.filter(pl.col(WEIGHT) < 0)
        if retracted.is_empty():
            return self._condense(rows)
        added = self._condense(rows.filter(pl.col(WEIGHT) > 0))
        removed = self.shape.partials.from_retracted(
            repeat_by_weight(retracted).drop(WEIGHT), group=self.shape.window_columns
        )
        return self.shape.partials.merge(pl.concat([added, removed]), group=self.shape.window_columns)

    def _condense(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Partials of rows that stand for as many as they weigh."""
        repeated = repeat_by_weight(rows).drop(WEIGHT)
        if self.shape.partials.is_ordered:
            repeated = repeated.sort("event_time", *self.shape.partials.input_columns).with_row_index(OFFSET)
            repeated = repeated.with_columns(
                pl.col("event_time").alias(ROW_TIME),
                pl.lit(0, pl.Int64).alias(SOURCE),
                pl.col(OFFSET).cast(pl.Int64),
            )
        return self.shape.partials.from_rows(repeated, group=self.shape.window_columns)

    def _merge(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.shape.partials.is_additive:
            return self.shape.partials.merge(rows, group=self.shape.window_columns)
        return add_up(rows, self.identity_columns)

    def _values(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The aggregates of each key and window that has rows."""
        merged = self._merge(rows)
        partials = merged if self.shape.partials.is_additive else self._condense(merged)
        return self.shape.partials.results(
            partials.filter(pl.col(PARTIAL_ROWS) > 0), group=self.shape.window_columns
        )

    def _fire(
        self, state: SlotState, net_rows: pl.DataFrame, old_watermark: int | None, watermark: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, numbers to remember."""
        operator_id, nothing = self.operator.id, self.shape.empty_changes
        old_bound, new_bound = (
            BEFORE_ALL if old_watermark is None else old_watermark,
            BEFORE_ALL if watermark is None else watermark,
        )
        first, last = end_range(net_rows)
        oldest, newest = min(old_bound, first - 1), max(new_bound, last)
        stored = state.table(operator_id, "rows").between(oldest, newest)
        if net_rows.is_empty() and (old_bound == new_bound or not stored):
            return self.shape.empty_panes, nothing, self.shape.empty_counters
        stored_rows = pl.concat([self._empty_rows, *stored])
        counters = pl.concat(
            [self.shape.empty_counters, *state.table(operator_id, "panes").between(oldest, newest)]
        )
        fired = [
            emit.number_panes(
                self._pane_values(timing, previous_rows, new_rows, counters), counters, new_bound
            )
            for timing, after, until in (
                ("late", oldest, old_bound),
                ("on_time", old_bound, new_bound),
                ("early", new_bound, newest),
            )
            for previous_rows, new_rows in (self._select_due(timing, stored_rows, net_rows, after, until),)
            if not (previous_rows.is_empty() and new_rows.is_empty())
        ]
        if not fired:
            return self.shape.empty_panes, nothing, self.shape.empty_counters
        return (
            pl.concat([self.shape.empty_panes, *(emission.panes for emission in fired)]),
            pl.concat([nothing, *(emission.changes for emission in fired)]),
            pl.concat([self.shape.empty_counters, *(emission.counters for emission in fired)]),
        )

    def _pane_values(
        self, timing: str, previous_rows: pl.DataFrame, new_rows: pl.DataFrame, counters: pl.DataFrame
    ) -> PaneValues:
        """The values of the groups that are due, now and as they were shown.
        Before its window ended a group was shown only if counted.
        """
        current = self._values(pl.concat([previous_rows, new_rows]))
        if timing == "late":
            return PaneValues(self.operator, current, self._values(previous_rows), timing)
        if counters.is_empty():
            return PaneValues(self.operator, current, None, timing)
        return PaneValues(
            self.operator,
            current,
            self._values(_rows_of_groups(previous_rows, counters.select(self.shape.group_columns))),
            timing,
        )

    def _select_due(
        self, timing: str, stored_rows: pl.DataFrame, net_rows: pl.DataFrame, low: int, high: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What was and what came of the groups to show: those touched; on time, all, unless they were shown
        with each change. Another windowing than that of the panes shows nothing early.
        """
        node = self.operator.aggregation
        is_unwindowed = node.windowing.is_unwindowed
        if timing == "early" and not (node.same_window or is_unwindowed):
            return stored_rows.clear(), net_rows.clear()
        within = pl.col(END).is_between(low, high, closed="right")
        before, now = stored_rows.filter(within), net_rows.filter(within)
        if timing == "on_time" and not is_unwindowed:
            return before, now
        return _rows_of_groups(before, now.select(self.shape.group_columns)), now


def _rows_of_groups(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    return rows.join(groups, on=groups.columns, how="semi", nulls_equal=True)
