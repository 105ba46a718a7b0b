"""Aggregation over rows, by slices: one partial per key and slide, shared by all windows that cover it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.engine.arrivals import collect_reports, learned_watermarks
from millrace.engine.exchange import Block, Body
from millrace.engine.operators import emit
from millrace.engine.operators.emit import OperatorResult, PaneValues, WindowOperator
from millrace.engine.operators.running_sums import RunningSums, SumChanges, uses_running_sums
from millrace.engine.operators.slices import LEAST, Grid, end_range, grid_of
from millrace.engine.progress import PartitionReport, Progress
from millrace.engine.state import Layout, SlotState

MIN_WINDOWS_TO_MERGE = 8
"""How many of the windows at hand a slice must be in before slices that are in the same ones are merged first."""
MAX_EXPANDED_ROWS = 4_000_000
"""How many rows one expansion of slices into windows may make; more are made in turns."""


@dataclass(frozen=True, eq=False)
class SlicedWindowsOperator(WindowOperator):
    """The operator of a first aggregation."""

    @cached_property
    def grid(self) -> Grid:
        """Its windows."""
        return grid_of(self.operator.aggregation.windowing)

    @cached_property
    def layout(self) -> Layout:
        """How slices are kept."""
        start = pl.col("_slice")
        return Layout(self.grid.first_end(start), self.grid.last_end(start), self.partials.merge)

    @cached_property
    def running(self) -> RunningSums | None:
        """How windows that share very much are made; None: of their slices."""
        return (
            RunningSums(self.grid, self.partials, self.empty_slices)
            if uses_running_sums(self.grid, self.partials)
            else None
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire, expired state is dropped."""
        operator_id, lateness = self.operator.id, self.operator.horizon
        reports = collect_reports(self.operator, body)
        before = Progress.from_json(state.values.get(operator_id)).wake(reports, body.now)
        new, late = self._accept(blocks, reports, before)
        after = before.advance(reports, body.now, at_end=body.at_end)
        sum_changes = self._read_sum_changes(state, new, before.low_watermark, after.low_watermark)
        emitted, changes, counters = self._fire(state, new, (before.low_watermark, after), sum_changes)
        if self.running is not None:
            state = self.running.write(state, operator_id, sum_changes, new)
        state = state.append(operator_id, "slices", new, self.layout)
        state = state.append(operator_id, "panes", counters, self.counter_layout)
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
            after.partition_watermarks(reports),
        )

    def _read_sum_changes(
        self, state: SlotState, new: pl.DataFrame, old_watermark: int | None, watermark: int | None
    ) -> SumChanges | None:
        """What the batch does to running sums, if there are any."""
        return (
            None
            if self.running is None or watermark is None
            else self.running.read_changes(state, self.operator.id, new, old_watermark, watermark)
        )

    def _accept(
        self, blocks: list[Block], reports: dict[str, PartitionReport], progress: Progress
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The batch's accepted rows as partials, and the rows that some window refused."""
        accepted: list[pl.DataFrame] = [self.empty_slices]
        late: list[pl.DataFrame] = []
        for block in blocks:
            frame, refused = self._split_late(block, reports, progress)
            frame = self.partials.from_rows(frame) if block.kind == "rows" else frame.drop("_part")
            accepted.append(frame)
            if refused is not None:
                topic = block.channel.partition("/")[2]
                late.append(
                    refused.rename({"_part": "_partition"}).with_columns(pl.lit(topic).alias("_topic"))
                )
        return pl.concat(accepted), pl.concat(late, how="diagonal_relaxed") if late else None

    @cached_property
    def empty_slices(self) -> pl.DataFrame:
        """No slices, in the columns that they have."""
        empty = self.operator.node.inputs[0].schema.to_frame()
        number = pl.lit(0, pl.Int64)
        rows = empty.with_columns(number.alias(c) for c in ("_t", "_src", "_off", "_slice", "_from"))
        return self.partials.from_rows(rows.clear())

    def _split_late(
        self, block: Block, reports: dict[str, PartitionReport], progress: Progress
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows with the first window end that takes them, and those that an earlier window would have taken."""
        windowing, grid, frame = self.operator.aggregation.windowing, self.grid, block.frame
        is_judged = self.operator.carries_watermarks(block.channel)
        if "_clock" in frame.columns:
            watermarks = learned_watermarks(frame, block.channel, reports, progress)
            frame = frame.with_columns(
                pl.max_horizontal("_from", grid.first_end(watermarks - windowing.lateness))
            ).drop("_clock")
        first_open = {}
        for part in frame["_part"].unique():
            name = f"{block.channel}/{part}"
            watermark = None if is_judged else progress.partitions[name].watermark(reports[name].delay)
            first_open[part] = max(
                grid.end_above(None if watermark is None else watermark - windowing.lateness),
                grid.end_above(progress.dropped_until),
            )
        first_unfired = grid.end_above(progress.low_watermark) if windowing.fires_once else LEAST
        smallest: Any = frame["_from"].min()
        if block.kind == "partials" and max(*first_open.values(), first_unfired) <= smallest:
            return frame, None
        first = pl.col("_first") if block.kind == "rows" else grid.first_end(pl.col("_slice"))
        last = grid.last_end(pl.col("_slice"))
        open_from = pl.col("_part").replace_strict(first_open, return_dtype=pl.Int64)
        frame = frame.with_columns(
            pl.max_horizontal("_from", open_from).alias("_late"), first.alias("_first")
        )
        frame = frame.with_columns(pl.max_horizontal("_late", pl.lit(first_unfired, pl.Int64)).alias("_from"))
        refused = frame.filter(pl.col("_from") > pl.col("_first"))
        accepted = frame.filter(pl.col("_from") <= last).drop("_late", "_first")
        return accepted, None if refused.is_empty() else self._to_late_rows(
            refused, has_rows=block.kind == "rows"
        )

    def _to_late_rows(self, frame: pl.DataFrame, *, has_rows: bool) -> pl.DataFrame:
        """Rows as the late output shows them; those that came condensed, with what is known of them."""
        every, last = self.grid.window.every, self.grid.last_end(pl.col("_slice"))
        reason = pl.when(pl.col("_late") > pl.col("_first")).then(pl.lit("late")).otherwise(pl.lit("closed"))
        missed = (pl.min_horizontal(pl.col("_from"), last + every) - pl.col("_first")) // every
        frame = frame.with_columns(reason.alias("reason"), missed.alias("missed"))
        if has_rows:
            return frame.drop("_t", "_slice", "_from", "_first", "_late", "_src").with_columns(
                pl.lit(1, pl.Int64).alias("_rows")
            )
        return frame.select(
            *self.partials.keys,
            "_part",
            "reason",
            "missed",
            pl.col("_slice").alias("event_time"),
            pl.col("_n").alias("_rows"),
        )

    def _fire(
        self,
        state: SlotState,
        new: pl.DataFrame,
        watermarks: tuple[int | None, Progress],
        sum_changes: SumChanges | None,
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, numbers to remember."""
        operator_id, group, old_watermark, watermark, added_masks = (
            self.operator.id,
            self.group_columns,
            watermarks[0],
            watermarks[1].low_watermark,
            self.mask_added_aggregates(watermarks[1].added_since),
        )
        emitted, changes, counters = [self.empty_panes], [self.empty_changes], self.empty_counters
        old_bound = LEAST if old_watermark is None else old_watermark
        smallest: Any = new["_from"].min()
        late = smallest is not None and smallest <= old_bound
        if watermark is None or (self.grid.end_above(old_watermark) > watermark and not late):
            return self.empty_panes, self.empty_changes, counters
        touched = (
            self.grid.expand(new, None, old_watermark).select(group).unique().collect()
            if late
            else self.empty_counters.select(group)
        )
        oldest = min(old_bound, end_range(touched)[0] - 1)
        needed = (
            []
            if touched.is_empty() and sum_changes is not None
            else state.table(operator_id, "slices").between(oldest, watermark)
        )
        stored = pl.concat([self.empty_slices, *needed])
        if not touched.is_empty():
            stored_counters = pl.concat(
                [counters, *state.table(operator_id, "panes").between(oldest, watermark)]
            )
            stored_slices, new_slices = self._slices_of(stored, touched), self._slices_of(new, touched)
            values = (
                self._values(pl.concat([stored_slices, new_slices]), oldest, old_watermark, touched),
                self._values(stored_slices, oldest, old_watermark, touched),
            )
            fired = emit.number_panes(
                PaneValues(
                    self.operator,
                    values[0].with_columns(added_masks),
                    values[1].with_columns(added_masks),
                    "late",
                ),
                stored_counters,
                watermark,
            )
            emitted.append(fired.panes)
            changes.append(fired.changes)
            counters = fired.counters
        if self.grid.end_above(old_watermark) <= watermark and (
            stored.height or new.height or sum_changes is not None
        ):
            values_now = self._complete_windows(
                stored, new, old_watermark, watermark, sum_changes
            ).with_columns(added_masks)
            fired = emit.number_panes(
                PaneValues(self.operator, values_now, None, "on_time"), self.empty_counters, watermark
            )
            emitted.append(fired.panes)
            changes.append(fired.changes)
        return pl.concat(emitted), pl.concat(changes), counters

    def _slices_of(self, slices: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
        """The slices of keys that are to be shown again."""
        keys = self.partials.keys
        return (
            slices.lazy()
            .join(groups.lazy().select(keys).unique(), on=keys, how="semi", nulls_equal=True)
            .collect()
        )

    def _complete_windows(
        self,
        stored: pl.DataFrame,
        new: pl.DataFrame,
        old_watermark: int | None,
        watermark: int,
        sum_changes: SumChanges | None,
    ) -> pl.DataFrame:
        """The aggregates of each key and window that is complete now."""
        if self.running is None or sum_changes is None:
            return self._values(pl.concat([stored, new]), old_watermark, watermark)
        return self.running.complete_windows(sum_changes, old_watermark)

    def _values(
        self, slices: pl.DataFrame, low: int | None, high: int | None, only: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The aggregates of each key and window that ends in `(low, high]`, or of those listed in `only`."""
        if self.running is not None and only is not None and low is not None and high is not None:
            return _restrict_to(self.running.late_windows(slices, low, high).lazy(), only).collect()
        if (
            self.partials.latest_order_columns
            and high is not None
            and not any(slices[c].null_count() for c in self.partials.latest_order_columns)
        ):
            newest = self.grid.newest(
                slices, low, high, self.partials.keys, self.partials.latest_order_columns
            )
            return self.partials.results(_restrict_to(newest, only))
        window = self.grid.window
        first, last = self._bounds(slices, low, high)
        per_slice = min(window.size, max(last - first, window.every)) // window.every
        if per_slice >= MIN_WINDOWS_TO_MERGE and high is not None:
            slices = self.partials.merge(self.grid.align(slices, low, high))
        if slices.height * per_slice > MAX_EXPANDED_ROWS and last - first > window.every:
            middle = (first + last) // 2
            sooner = slices.filter(pl.col("_from") <= middle)
            later = slices.filter(self.grid.last_end(pl.col("_slice")) > middle)
            return pl.concat(
                [self._values(sooner, first, middle, only), self._values(later, middle, last, only)]
            )
        return self.partials.merge_to_results(_restrict_to(self.grid.expand(slices, low, high), only))

    def _bounds(self, slices: pl.DataFrame, low: int | None, high: int | None) -> tuple[int, int]:
        """`(low, high]`, no wider than the windows that the slices at hand can reach."""
        if slices.is_empty() or high is None:
            return 0, 0
        first, last = slices.select(
            pl.col("_from").min(), self.grid.last_end(pl.col("_slice")).max().alias("last")
        ).row(0)
        return max(LEAST if low is None else low, first - 1), min(high, last)


def _restrict_to(frame: pl.LazyFrame, groups: pl.DataFrame | None) -> pl.LazyFrame:
    """The rows of some groups, or of all."""
    return (
        frame
        if groups is None
        else frame.join(groups.lazy(), on=groups.columns, how="semi", nulls_equal=True)
    )
