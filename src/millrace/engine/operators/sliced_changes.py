"""Fixed and sliding windows over a changelog, from slices: each row that comes or is taken back changes one
slice, shared by all windows that cover it.

Windows show nothing before they end. Then each shows the rows that hold by then, and again whenever a change
comes for it, until nothing can change it any more.

Example, windows of 10 s every 5 s, a count:

    watermark   comes in           slices              shown
    14 s        + at 8 s           5 s: 1              [0, 10): 1
    15 s        + at 12 s          5 s: 1, 10 s: 1     [5, 15): 2
    16 s        - at 8 s           10 s: 1             [0, 10): withdrawn, [5, 15): 1
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
from millrace.engine.operators.distinct_windows import DistinctWindows, uses_spans
from millrace.engine.operators.emit import EmittedPanes, PaneValues, WindowShape
from millrace.engine.operators.row_bag import RowBag
from millrace.engine.operators.running_sums import RunningSums, uses_running_sums
from millrace.engine.operators.slices import Grid, end_range, grid_of
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import FIRST_OPEN_END, SLICE, WEIGHT


@dataclass(frozen=True, eq=False)
class SlicedChangesOperator:
    """The operator of an aggregation over a changelog in windows of its own."""

    operator: Operator

    @cached_property
    def shape(self) -> WindowShape:
        """Its columns and those of its panes."""
        return WindowShape(self.operator)

    @cached_property
    def grid(self) -> Grid:
        """Its windows."""
        return grid_of(self.operator.aggregation.windowing)

    @cached_property
    def bag(self) -> RowBag:
        """How rows are kept."""
        return RowBag(self.shape.partials, (SLICE,))

    @cached_property
    def layout(self) -> Layout:
        """How slices are kept."""
        return self.grid.layout(self.bag.merge)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: changes are applied, the watermark moves, panes fire, expired state is dropped."""
        operator_id, horizon = self.operator.id, self.operator.horizon
        old_watermark: int | None = state.values.get(operator_id)
        watermark = upstream_watermark(self.operator, body, old_watermark)
        net = self._net_rows(blocks)
        fired = self._fire(state, net, old_watermark, watermark)
        state = state.append(operator_id, "slices", net, self.layout)
        counters = [self.shape.empty_counters, *(one.counters for one in fired)]
        state = state.append(operator_id, "panes", pl.concat(counters), self.shape.counter_layout)
        if watermark is not None:
            state = state.expire(operator_id, "slices", watermark - horizon)
            state = state.expire(operator_id, "panes", watermark - horizon)
        return OperatorResult(
            state.with_values(operator_id, watermark),
            watermark,
            pl.concat([self.shape.empty_panes, *(one.panes for one in fired)]),
            pl.concat([self.shape.empty_changes, *(one.changes for one in fired)]),
        )

    def _net_rows(self, blocks: list[Block]) -> pl.DataFrame:
        """What the batch's changes come to, by slice."""
        in_slice = self.grid.slice_of(pl.col("event_time")).alias(SLICE)
        columns = [*self.bag.identity_columns, WEIGHT]
        frames = [block.frame.with_columns(weight_of_change(), in_slice).select(columns) for block in blocks]
        return self.bag.net(pl.concat(frames)) if frames else self.bag.empty

    def _fire(
        self, state: SlotState, net: pl.DataFrame, old_watermark: int | None, watermark: int | None
    ) -> list[EmittedPanes]:
        """Windows that ended before and that the batch changes, then those that end with it."""
        if watermark is None:
            return []
        old_bound = BEFORE_ALL if old_watermark is None else old_watermark
        touched = self._find_touched_groups(net, old_watermark)
        is_time = self.grid.end_above(old_watermark) <= watermark
        if touched.is_empty() and not is_time:
            return []
        oldest = min(old_bound, end_range(touched)[0] - 1)
        bounds = (oldest, old_bound, watermark)
        stored = pl.concat(
            [self.bag.empty, *state.table(self.operator.id, "slices").between(oldest, watermark)]
        )
        fired = [] if touched.is_empty() else [self._fire_late(state, stored, net, touched, bounds)]
        if is_time and (stored.height or net.height):
            current = self._values(pl.concat([stored, net]), old_bound, watermark)
            values = PaneValues(self.operator, current, None, "on_time")
            fired.append(emit.number_panes(values, self.shape.empty_counters, watermark))
        return fired

    def _find_touched_groups(self, net: pl.DataFrame, old_watermark: int | None) -> pl.DataFrame:
        """The keys and windows, shown already, that the batch changes."""
        slices = net.select(*self.shape.partials.keys, SLICE).unique()
        ended = self.grid.expand(slices.with_columns(self._first_end), None, old_watermark)
        return ended.select(self.shape.group_columns).unique().collect()

    @property
    def _first_end(self) -> pl.Expr:
        return self.grid.first_end(pl.col(SLICE)).alias(FIRST_OPEN_END)

    def _fire_late(
        self,
        state: SlotState,
        stored: pl.DataFrame,
        net: pl.DataFrame,
        touched: pl.DataFrame,
        bounds: tuple[int, int, int],
    ) -> EmittedPanes:
        """Shows windows again that the batch changed: their values now, and those shown before."""
        oldest, old_bound, watermark = bounds
        numbers = state.table(self.operator.id, "panes").between(oldest, old_bound)
        counters = pl.concat([self.shape.empty_counters, *numbers])
        keys = touched.select(self.shape.partials.keys).unique()
        of_keys = stored.join(keys, on=keys.columns, how="semi", nulls_equal=True)
        current = self._values(pl.concat([of_keys, net]), oldest, old_bound)
        previous = self._values(of_keys, oldest, old_bound)
        now, before = (
            frame.join(touched, on=touched.columns, how="semi", nulls_equal=True)
            for frame in (current, previous)
        )
        return emit.number_panes(PaneValues(self.operator, now, before, "late"), counters, watermark)

    @cached_property
    def _distinct(self) -> DistinctWindows | None:
        """How distinct values are counted, if nothing else but sums is asked for."""
        partials = self.shape.partials
        return (
            DistinctWindows(self.grid, partials) if uses_spans(self.grid, partials, min_windows=2) else None
        )

    @cached_property
    def _running(self) -> RunningSums | None:
        """How windows that share very much are summed up."""
        partials = self.shape.partials
        if not uses_running_sums(self.grid, partials):
            return None
        return RunningSums(
            self.grid, partials, self.bag.condense(self.bag.empty).with_columns(self._first_end)
        )

    def _values(self, kept: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]` and has rows."""
        slices = self.bag.condense(kept).with_columns(self._first_end)
        if self._distinct is not None:
            return self._distinct.windows(slices, low, high).collect()
        if self._running is not None:
            return self._running.late_windows(slices, low, high)
        return self.shape.partials.merge_to_results(self.grid.expand(slices, low, high))
