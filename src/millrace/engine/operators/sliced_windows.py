"""Fixed and sliding windows that fire by the watermark, from slices: one partial per key and slice, shared by
all windows that cover it.

Windows of 30 s every 5 s overlap sixfold. A row is not put into six windows, but into the one slice of 5 s
that it falls into; a window is made of its six slices when it fires. `_slice` is where the slice starts,
`_from` the end of the first window that takes these rows: a late row may be in time for the later windows of
its slice only.

Example, windows of 10 s every 5 s, no lateness, a row at 12 s:

    watermark at the row   _slice   _from   windows that take it
    11 s                   10 s     15 s    [5, 15), [10, 20)
    16 s                   10 s     20 s    [10, 20)            the row is reported as late with missed = 1

A slice is kept until no window can change any more that it is in: the end of its last window and the
lateness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import polars as pl

from millrace.durations import BEFORE_ALL
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.lateness import SliceJudge
from millrace.engine.operators import emit, shared_slices
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.distinct_windows import DistinctWindows, uses_spans
from millrace.engine.operators.emit import EmittedPanes, PaneValues, WindowShape
from millrace.engine.operators.running_sums import RunningSums, SumChanges, uses_running_sums
from millrace.engine.operators.shared_slices import SharedSlices
from millrace.engine.operators.slices import Grid, end_range, grid_of
from millrace.engine.plan import Operator
from millrace.engine.progress import Progress
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import (
    FIRST_OPEN_END,
    LATE_PARTITION,
    OFFSET,
    PARTITION,
    ROW_TIME,
    SLICE,
    SOURCE,
    TOPIC,
)

MIN_WINDOWS_TO_MERGE = 8
"""How many of the windows at hand a slice must be in before slices that are in
the same ones are merged first.
"""
MAX_EXPANDED_ROWS = 4_000_000
"""How many rows one expansion of slices into windows may make; more are made in turns."""
MAX_MERGED_ROWS = 400_000
"""The same where slices are merged first: each half of the windows has fewer to expand than both together."""


@dataclass(frozen=True, eq=False)
class _WatermarkMove:
    """The watermark before and after a batch."""

    old_watermark: int | None
    watermark: int
    added_masks: list[pl.Expr]
    """Null for aggregates that were added to the job after a window began."""

    @property
    def old_bound(self) -> int:
        """The old watermark as a number."""
        return _bound_of(self.old_watermark)


@dataclass(frozen=True, eq=False)
class SlicedWindowsOperator:
    """The operator of a first aggregation."""

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
    def layout(self) -> Layout:
        """How slices are kept."""
        return self.grid.layout(self.shape.partials.merge)

    @cached_property
    def running(self) -> RunningSums | None:
        """How windows that share very much are made; None: of their slices."""
        return (
            RunningSums(self.grid, self.shape.partials, self.empty_slices)
            if uses_running_sums(self.grid, self.shape.partials)
            else None
        )

    @cached_property
    def shared(self) -> SharedSlices | None:
        """How stored slices are read where windows overlap much; None: as they are."""
        window = self.grid.window
        overlaps = window.size >= shared_slices.MIN_WINDOWS_PER_SLICE * window.every
        return SharedSlices(self.grid, self.shape.partials) if overlaps else None

    @cached_property
    def distinct(self) -> DistinctWindows | None:
        """How windows that overlap much are made where distinct values are counted; None: of their slices."""
        partials = self.shape.partials
        return DistinctWindows(self.grid, partials) if uses_spans(self.grid, partials) else None

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire,
        expired state is dropped.
        """
        operator_id, lateness = self.operator.id, self.operator.horizon
        progress = BatchProgress.of(self.operator, body, state.values.get(operator_id))
        before, after = progress.before, progress.after
        new, late = self._accept(blocks, progress)
        sum_changes = self._read_sum_changes(state, new, before.low_watermark, after.low_watermark)
        emitted, changes, counters = self._fire(state, new, (before.low_watermark, after), sum_changes)
        if self.running is not None:
            state = self.running.write(state, operator_id, sum_changes, new)
        kept, layout = self._forget_superseded(new, after.low_watermark)
        state = state.append(operator_id, "slices", kept, layout)
        state = state.append(operator_id, "panes", counters, self.shape.counter_layout)
        if after.low_watermark is not None:
            extra_time = self.grid.window.every if self.running is not None else 0
            state = state.expire(operator_id, "slices", after.low_watermark - lateness - extra_time).expire(
                operator_id, "panes", after.low_watermark - lateness
            )
        return OperatorResult(
            state.with_values(operator_id, after.to_json()),
            after.low_watermark,
            emitted,
            changes,
            late,
            progress,
        )

    def _forget_superseded(self, new: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, Layout]:
        """The new slices that windows need which may still be shown, and how stored ones are merged without
        the others.
        """
        if self.shared is None or self.shape.partials.superseded is None or watermark is None:
            return new, self.layout
        forget = partial(
            self.shared.forget_superseded, first_end=self.grid.end_above(watermark - self.operator.horizon)
        )
        return forget(new), replace(self.layout, merge=lambda slices: self.layout.merge(forget(slices)))

    def _read_sum_changes(
        self, state: SlotState, new: pl.DataFrame, old_watermark: int | None, watermark: int | None
    ) -> SumChanges | None:
        """What the batch does to running sums, if there are any."""
        return (
            None
            if self.running is None or watermark is None
            else self.running.read_changes(state, self.operator.id, new, old_watermark, watermark)
        )

    @cached_property
    def judge(self) -> SliceJudge:
        """How rows are judged."""
        return SliceJudge(self.operator, self.grid, self.shape.partials.keys)

    def _accept(
        self, blocks: list[Block], progress: BatchProgress
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The batch's accepted rows as partials, and the rows that some window refused."""
        accepted: list[pl.DataFrame] = [self.empty_slices]
        late: list[pl.DataFrame] = []
        for block in blocks:
            frame, refused = self.judge.split_late(block, progress)
            frame = self.shape.partials.from_rows(frame) if block.kind == "rows" else frame.drop(PARTITION)
            accepted.append(frame)
            if refused is not None:
                topic = self.operator.topic_of(block.channel)
                late.append(
                    refused.rename({PARTITION: LATE_PARTITION}).with_columns(
                        pl.lit(topic, pl.String).alias(TOPIC)
                    )
                )
        return pl.concat(accepted), pl.concat(late, how="diagonal_relaxed") if late else None

    @cached_property
    def empty_slices(self) -> pl.DataFrame:
        """No slices, in the columns that they have."""
        empty = self.operator.node.inputs[0].schema.to_frame()
        number = pl.lit(0, pl.Int64)
        rows = empty.with_columns(number.alias(c) for c in (ROW_TIME, SOURCE, OFFSET, SLICE, FIRST_OPEN_END))
        return self.shape.partials.from_rows(rows.clear())

    def _fire(
        self,
        state: SlotState,
        new: pl.DataFrame,
        watermarks: tuple[int | None, Progress],
        sum_changes: SumChanges | None,
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, numbers to remember.

        Late rows change windows that were shown already: those are shown again. Then the windows that
        the watermark has completed are shown for the first time.
        """
        old_watermark, watermark = watermarks[0], watermarks[1].low_watermark
        has_late = self._has_late_slices(new, old_watermark)
        if watermark is None or (self.grid.end_above(old_watermark) > watermark and not has_late):
            return self.shape.empty_panes, self.shape.empty_changes, self.shape.empty_counters
        added_masks = self.shape.mask_added_aggregates(watermarks[1].added_since)
        move = _WatermarkMove(old_watermark, watermark, added_masks)
        touched = self._find_touched_groups(new, move) if has_late else self._no_groups
        emitted = []
        if not touched.is_empty():
            emitted.append(self._fire_late(state, new, touched, move))
        counters = emitted[0].counters if emitted else self.shape.empty_counters
        if self.grid.end_above(old_watermark) <= watermark:
            emitted += self._fire_on_time(state, new, sum_changes, move)
        return (
            pl.concat([self.shape.empty_panes, *(one.panes for one in emitted)]),
            pl.concat([self.shape.empty_changes, *(one.changes for one in emitted)]),
            counters,
        )

    def _has_late_slices(self, new: pl.DataFrame, old_watermark: int | None) -> bool:
        """Whether some new row belongs to a window that was shown already."""
        smallest: Any = new[FIRST_OPEN_END].min()
        return smallest is not None and smallest <= _bound_of(old_watermark)

    @property
    def _no_groups(self) -> pl.DataFrame:
        return self.shape.empty_counters.select(self.shape.group_columns)

    def _find_touched_groups(self, new: pl.DataFrame, move: _WatermarkMove) -> pl.DataFrame:
        """The keys and windows, shown already, that late rows change."""
        touched = self.grid.expand(new, None, move.old_watermark)
        return touched.select(self.shape.group_columns).unique().collect()

    def _fire_late(
        self,
        state: SlotState,
        new: pl.DataFrame,
        touched: pl.DataFrame,
        move: _WatermarkMove,
    ) -> EmittedPanes:
        """Shows windows again that late rows changed: their values now, and those shown before."""
        oldest = end_range(touched)[0] - 1
        stored = self._stored_slices(state, oldest, move.old_bound)
        stored_counters = pl.concat(
            [
                self.shape.empty_counters,
                *state.table(self.operator.id, "panes").between(oldest, move.watermark),
            ]
        )
        stored_slices, new_slices = self._slices_of(stored, touched), self._slices_of(new, touched)
        all_slices = pl.concat([stored_slices, new_slices])
        current = self._values(all_slices, oldest, move.old_watermark, touched)
        previous = self._values(stored_slices, oldest, move.old_watermark, touched)
        values = PaneValues(
            self.operator,
            current.with_columns(move.added_masks),
            previous.with_columns(move.added_masks),
            "late",
        )
        return emit.number_panes(values, stored_counters, move.watermark)

    def _fire_on_time(
        self, state: SlotState, new: pl.DataFrame, sum_changes: SumChanges | None, move: _WatermarkMove
    ) -> list[EmittedPanes]:
        """Shows the windows that are complete now, if there are slices."""
        current = self._complete_windows(state, new, sum_changes, move)
        if current is None:
            return []
        values = PaneValues(self.operator, current.with_columns(move.added_masks), None, "on_time")
        return [emit.number_panes(values, self.shape.empty_counters, move.watermark)]

    def _slices_of(self, slices: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """The slices of keys that are to be shown again."""
        keys = self.shape.partials.keys
        return (
            slices.lazy()
            .join(groups.lazy().select(keys).unique(), on=keys, how="semi", nulls_equal=True)
            .collect()
        )

    def _complete_windows(
        self, state: SlotState, new: pl.DataFrame, sum_changes: SumChanges | None, move: _WatermarkMove
    ) -> pl.DataFrame | None:
        """The aggregates of each key and window that is complete now; None where there are no slices."""
        if self.running is not None and sum_changes is not None:
            return self.running.complete_windows(sum_changes, move.old_watermark)
        slices = pl.concat([self._stored_slices(state, move.old_bound, move.watermark), new])
        return None if slices.is_empty() else self._values(slices, move.old_watermark, move.watermark)

    def _stored_slices(self, state: SlotState, low: int, high: int) -> pl.DataFrame:
        """What is stored of the windows that end in `(low, high]`."""
        table = state.table(self.operator.id, "slices")
        parts = table.between(low, high) if self.shared is None else self.shared.read(table, low, high)
        return pl.concat([self.empty_slices, *parts])

    def _values(
        self, slices: pl.DataFrame, low: int | None, high: int | None, only: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, or of those listed in `only`."""
        if self.running is not None and only is not None and low is not None and high is not None:
            return _restrict_to(self.running.late_windows(slices, low, high).lazy(), only).collect()
        if (
            self.shape.partials.latest_order_columns
            and high is not None
            and not any(slices[c].null_count() for c in self.shape.partials.latest_order_columns)
        ):
            newest = self.grid.newest(
                slices, low, high, self.shape.partials.keys, self.shape.partials.latest_order_columns
            )
            return self.shape.partials.results(_restrict_to(newest, only))
        if self.distinct is not None and high is not None:
            return _restrict_to(self.distinct.windows(slices, low, high), only).collect()
        window = self.grid.window
        first, last = self._bounds(slices, low, high)
        per_slice = min(window.size, max(last - first, window.every)) // window.every
        limit = MAX_EXPANDED_ROWS
        if per_slice >= MIN_WINDOWS_TO_MERGE and high is not None:
            slices, limit = self.shape.partials.merge(self.grid.align(slices, low, high)), MAX_MERGED_ROWS
        if slices.height * per_slice > limit and last - first > window.every:
            middle = (first + last) // 2
            sooner = slices.filter(pl.col(FIRST_OPEN_END) <= middle)
            later = slices.filter(self.grid.last_end(pl.col(SLICE)) > middle)
            return pl.concat(
                [self._values(sooner, first, middle, only), self._values(later, middle, last, only)]
            )
        return self.shape.partials.merge_to_results(_restrict_to(self.grid.expand(slices, low, high), only))

    def _bounds(self, slices: pl.DataFrame, low: int | None, high: int | None) -> tuple[int, int]:
        """`(low, high]`, no wider than the windows that the slices at hand can reach."""
        if slices.is_empty() or high is None:
            return 0, 0
        first, last = slices.select(
            pl.col(FIRST_OPEN_END).min(), self.grid.last_end(pl.col(SLICE)).max().alias("last")
        ).row(0)
        return max(_bound_of(low), first - 1), min(high, last)


def _bound_of(watermark: int | None) -> int:
    return BEFORE_ALL if watermark is None else watermark


def _restrict_to(frame: pl.LazyFrame, groups: pl.DataFrame | None) -> pl.LazyFrame:
    """The rows of some groups, or of all."""
    return (
        frame
        if groups is None
        else frame.join(groups.lazy(), on=groups.columns, how="semi", nulls_equal=True)
    )
