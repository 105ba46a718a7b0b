"""Aggregation over panes: values and retractions come in, so that late rows upstream correct what was shown
downstream. Where windows are set again, `sliced_changes.py` does it.

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
from millrace.engine.changelog import upstream_watermark, weight_of_change
from millrace.engine.exchange import Block, Body
from millrace.engine.operators import emit
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.emit import PaneValues, WindowShape
from millrace.engine.operators.row_bag import RowBag
from millrace.engine.operators.slices import end_range
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import END, START, WEIGHT
from millrace.windows import FOREVER


@dataclass(frozen=True, eq=False)
class ChainedOperator:
    """The operator of an aggregation in the windows of the panes that come in, or in none."""

    operator: Operator

    @cached_property
    def shape(self) -> WindowShape:
        """Its columns and those of its panes."""
        return WindowShape(self.operator)

    @cached_property
    def bag(self) -> RowBag:
        """How rows are kept."""
        return RowBag(self.shape.partials, self.shape.window_columns)

    @cached_property
    def layout(self) -> Layout:
        """How the bag, or the sums, are kept."""
        return Layout(pl.col(END), pl.col(END), self.bag.merge)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: changes are applied, the watermark moves, panes fire, expired state is dropped."""
        old_watermark: int | None = state.values.get(self.operator.id)
        watermark = upstream_watermark(self.operator, body, old_watermark)
        state = state.with_values(self.operator.id, watermark)
        frames = [self.assign_windows(block.frame) for block in blocks]
        return self.apply(state, frames, (old_watermark, watermark))

    def apply(
        self, state: SlotState, frames: list[pl.DataFrame], watermarks: tuple[int | None, int | None]
    ) -> OperatorResult:
        """A batch of rows with weights, each in a window; `watermarks` before and after it."""
        operator_id, horizon = self.operator.id, self.operator.horizon
        old_watermark, watermark = watermarks
        net = self.bag.net(pl.concat(frames)) if frames else self.bag.empty
        emitted, changes, counters = self._fire(state, net, old_watermark, watermark)
        state = state.append(operator_id, "rows", net, self.layout)
        state = state.append(operator_id, "panes", counters, self.shape.counter_layout)
        if watermark is not None:
            state = state.expire(operator_id, "rows", watermark - horizon).expire(
                operator_id, "panes", watermark - horizon
            )
        return OperatorResult(state, watermark, emitted, changes)

    def assign_windows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Changes in the windows that they have, or in the one of all time."""
        if self.operator.aggregation.same_window:
            window = pl.col("window_start").alias(START), pl.col("window_end").alias(END)
        else:
            start, end = (pl.lit(time, pl.Int64) for time in FOREVER)
            window = start.alias(START), end.alias(END)
        return frame.with_columns(weight_of_change(), *window).select(*self.bag.identity_columns, WEIGHT)

    def _values(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The aggregates of each key and window that has rows."""
        return self.shape.partials.results(self.bag.condense(rows), group=self.shape.window_columns)

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
        stored_rows = pl.concat([self.bag.empty, *stored])
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
        with each change.
        """
        if timing == "early" and self.operator.aggregation.sets_windows:
            return stored_rows.clear(), net_rows.clear()
        is_unwindowed = self.operator.aggregation.windowing.is_unwindowed
        within = pl.col(END).is_between(low, high, closed="right")
        before, now = stored_rows.filter(within), net_rows.filter(within)
        if timing == "on_time" and not is_unwindowed:
            return before, now
        return _rows_of_groups(before, now.select(self.shape.group_columns)), now


def _rows_of_groups(rows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    return rows.join(groups, on=groups.columns, how="semi", nulls_equal=True)
