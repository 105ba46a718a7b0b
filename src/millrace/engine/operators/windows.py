"""Windows that are kept one by one: sessions, triggers of all kinds, and wherever slices do not suffice.

A cell is what is kept of one key in one window: partial aggregates, the trigger's state, the numbers of its
panes, and the values that hold downstream. A batch reads and writes the cells that its rows touch, and those
that have waited for this time; the newest version of a cell counts.

The life of a cell, window [0 s, 10 s), lateness 5 s, early panes after every second row:

    batch  rows  watermark  trigger       pane                 the cell after it
    1      2     4 s        fires         early, index 0       2 rows, none of them new
    2      1     8 s        -             -                    3 rows, 1 new
    3      0     11 s       fires         on time, index 1     waits for nothing: `_due` is null
    4      1     13 s       fires         late, index 2        4 rows
    5      0     15 s       -             -                    dropped: the end and the lateness are over

Where windows grow into each other (`sessions.py`), the cells of the old windows are marked `_gone`, the new
cell has the sum of their partials, and what they have shown is taken back downstream, because no pane of the
new window replaces it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.keyed_table import newest_versions
from millrace.engine.lateness import WindowJudge, format_late_rows
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.emit import WindowShape
from millrace.engine.operators.sessions import GrownWindows
from millrace.engine.operators.triggers import TriggerColumns
from millrace.engine.operators.window_panes import WindowPanes
from millrace.engine.plan import Operator
from millrace.engine.state import Chunk, Layout, SlotState
from millrace.triggers import EveryEventTime, walk
from millrace.values.columns import (
    ARRIVED_ROWS,
    BASE_TIME,
    CLOCK_DUE,
    DUE,
    END,
    EXPIRES,
    FIRST_TIME,
    HIGHEST_TIME,
    IS_ASKED,
    IS_CLOSED,
    IS_GONE,
    LOWEST_TIME,
    MERGED_END,
    MERGED_START,
    MERGED_STATES,
    NEW_ROWS,
    OFFSET,
    PANE_COUNT,
    PANES_BEFORE,
    ROW_INDEX,
    ROW_TIME,
    SETTLED_BEFORE,
    SETTLED_COUNT,
    SHOWN_VALUES,
    SOURCE,
    START,
    STATE_VERSION,
    TRIGGER_STATE,
    WAS_PASSED,
    WATERMARK,
    WINDOW_TIME,
)
from millrace.windows import FOREVER

FULL_SCAN_ROWS = 50_000
"""From how many cells on, old versions counted, a batch looks only at those that it may concern."""

_MAX_CACHED = 64
_cell_cache: OrderedDict[tuple[str, ...], pl.DataFrame] = OrderedDict()
"""The cells that hold now, by the chunks they were read from,
so that a batch need not look through old versions again.
"""


@dataclass(frozen=True)
class BatchTimes:
    """Time in the windows' own domain before and after a batch, what rows are judged by, and the clock."""

    before: int
    lateness_time: int
    after: int
    clock: int


@dataclass(frozen=True, eq=False)
class WindowsOperator:
    """The operator of a first aggregation whose windows or triggers are not computed from slices."""

    operator: Operator

    @cached_property
    def shape(self) -> WindowShape:
        """Its columns and those of its panes."""
        return WindowShape(self.operator)

    @cached_property
    def row_judge(self) -> WindowJudge:
        """How rows are judged."""
        return WindowJudge(self.operator.aggregation.windowing, self.shape.partials.keys)

    @cached_property
    def trigger_columns(self) -> TriggerColumns:
        """The trigger."""
        row_columns, group = tuple(self.operator.aggregation.row_schema), tuple(self.shape.group_columns)
        return TriggerColumns(self.operator.aggregation.windowing.trigger, group, row_columns)

    @cached_property
    def window_panes(self) -> WindowPanes:
        """How panes are made."""
        return WindowPanes(self.operator, self.shape.partials)

    @cached_property
    def layout(self) -> Layout:
        """How cells are kept: the newest version of each."""
        end = pl.col(END)
        return Layout(
            end,
            end,
            lambda frame: newest_versions(frame, self.shape.group_columns),
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire,
        expired state is dropped.
        """
        operator_id = self.operator.id
        saved = state.values.get(operator_id) or {"progress": None, "time": BEFORE_ALL, "seq": 0}
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        before, after = progress.before, progress.after
        times = self._times(saved["time"], after.low_watermark, body.now)
        version, watermark = saved["seq"] + 1, None if times.after == BEFORE_ALL else times.after
        values = {"progress": after.to_json(), "time": times.after, "seq": version}
        rows = progress.load_rows(blocks)
        stored = self._read_cells(state, rows, times)
        if before.dropped_until is not None:
            stored = stored.filter(pl.col(END) > before.dropped_until)
        if rows is None and stored.is_empty():
            return OperatorResult(
                state.with_values(operator_id, values),
                watermark,
                self.shape.empty_panes,
                self.shape.empty_changes,
                None,
                progress,
            )
        touched, removed, late = self._accept(
            rows, stored, times, BEFORE_ALL if before.dropped_until is None else before.dropped_until
        )
        emitted, changes, changed = self._fire(
            stored, touched, removed, times, self.shape.mask_added_aggregates(before.added_since)
        )
        if removed.height:
            changes = pl.concat([self.window_panes.retract_downstream(removed), changes])
            emitted = pl.concat([self.window_panes.retract_removed(removed, times.lateness_time), emitted])
        state = self._write_cells(
            state, stored, changed.with_columns(pl.lit(version, pl.Int64).alias(STATE_VERSION)), times
        )
        return OperatorResult(
            state.with_values(operator_id, values),
            watermark,
            emitted,
            changes,
            late,
            progress,
        )

    def _times(self, before: int, low: int | None, now: int) -> BatchTimes:
        if not self.operator.aggregation.windowing.is_processing_time:
            return BatchTimes(before, before, BEFORE_ALL if low is None else low, now)
        return BatchTimes(
            before,
            max(before, now),
            END_OF_STREAM if low is not None and low >= END_OF_STREAM else max(before, now),
            now,
        )

    @cached_property
    def empty_cells(self) -> pl.DataFrame:
        """No cells, in the columns that they have."""
        number = pl.lit(0, pl.Int64)
        empty = self.operator.node.inputs[0].schema.to_frame()
        rows = empty.with_columns(
            number.alias(c) for c in (ROW_TIME, SOURCE, OFFSET, START, END, WATERMARK, ROW_INDEX)
        ).clear()
        new = self._new_cells(rows)
        text, no = pl.lit("", pl.String), pl.lit(value=False)
        return new.with_columns(
            text.alias(TRIGGER_STATE),
            no.alias(IS_CLOSED),
            no.alias(IS_GONE),
            *[number.alias(c) for c in (DUE, CLOCK_DUE, STATE_VERSION)],
        ).drop(ARRIVED_ROWS)

    def _read_cells(self, state: SlotState, rows: pl.DataFrame | None, times: BatchTimes) -> pl.DataFrame:
        """The cells that hold: all of them, or where they are many, those that this batch may concern."""
        table = state.table(self.operator.id, "cells")
        if not table.chunks:
            return self.empty_cells
        is_alive = pl.col(END) + self.operator.horizon > times.before
        if table.rows > FULL_SCAN_ROWS:
            return self._read_affected([chunk.frame for chunk in table.chunks], rows, times).filter(is_alive)
        digests, chunks = _digests(table.chunks), table.chunks
        if digests not in _cell_cache:
            newest = self.layout.merge(self._concat_cells([chunk.frame for chunk in chunks]))
            _cache_cells(digests, newest.filter(~pl.col(IS_GONE)))
        _cell_cache.move_to_end(digests)
        return _cell_cache[digests].filter(is_alive)

    def _concat_cells(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Cells of several chunks."""
        return pl.concat([self.empty_cells, *frames], how="diagonal")

    def _read_affected(
        self, frames: list[pl.DataFrame], rows: pl.DataFrame | None, times: BatchTimes
    ) -> pl.DataFrame:
        """The newest cells of the keys that rows came for, and of those that waited for this time."""
        keys = self.shape.partials.keys
        key_frames = [frame.filter(self._is_due(times) & ~pl.col(IS_CLOSED)).select(keys) for frame in frames]
        if rows is not None:
            key_frames.append(rows.select(keys))
        affected_keys = pl.concat(key_frames).unique()
        cells = self._concat_cells(
            [frame.join(affected_keys, on=keys, how="semi", nulls_equal=True) for frame in frames]
        )
        return self.layout.merge(cells).filter(~pl.col(IS_GONE))

    def _is_due(self, times: BatchTimes) -> pl.Expr:
        """Whether the time has come for which a cell waited."""
        due = (pl.col(DUE) <= times.after) | (pl.col(CLOCK_DUE) <= times.clock)
        expires = pl.col(END) + self.operator.horizon <= times.after
        return due.fill_null(value=False) | (
            expires if self.operator.aggregation.windowing.closing != "none" else pl.lit(value=False)
        )

    def _write_cells(
        self, state: SlotState, stored: pl.DataFrame, changed: pl.DataFrame, times: BatchTimes
    ) -> SlotState:
        """With the new versions of cells, and without those whose time is over."""
        operator_id, horizon = self.operator.id, self.operator.horizon
        is_alive, old_digests = (
            pl.col(END) + horizon > times.after,
            _digests(state.table(operator_id, "cells").chunks),
        )
        is_small = state.table(operator_id, "cells").rows <= FULL_SCAN_ROWS
        if changed.height:
            changed = changed.filter(is_alive).select(self.empty_cells.columns)
            state = state.append(operator_id, "cells", changed, self.layout)
        state = state.expire(operator_id, "cells", times.after - horizon)
        new_digests = _digests(state.table(operator_id, "cells").chunks)
        if new_digests == old_digests:
            return state
        _cell_cache.pop(old_digests, None)
        if is_small:
            unchanged = stored.filter(is_alive)
            if unchanged.height:
                unchanged = unchanged.join(
                    changed.select(self.shape.group_columns),
                    on=self.shape.group_columns,
                    how="anti",
                    nulls_equal=True,
                )
            _cache_cells(
                new_digests,
                pl.concat([unchanged, changed.filter(~pl.col(IS_GONE)).select(unchanged.columns)]),
            )
        return state

    def _accept(
        self, rows: pl.DataFrame | None, stored: pl.DataFrame, times: BatchTimes, dropped_until: int
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
        """The cells that rows came to, those that are no more because they grew
        into others, and the refused rows.
        """
        if rows is None:
            return self._no_touched, self.empty_cells, None
        at = (
            pl.lit(times.clock, pl.Int64)
            if self.operator.aggregation.windowing.is_processing_time
            else pl.col(ROW_TIME)
        )
        judged = self.row_judge.judge(rows.with_columns(at.alias(WINDOW_TIME)), stored, dropped_until)
        late = None if judged.verdicts.is_empty() else format_late_rows(rows, judged.verdicts)
        grown = judged.grown
        if grown.rows.is_empty():
            return self._no_touched, self.empty_cells, late
        touched, moved = (
            self._touched_cells(grown, stored, times),
            grown.moved_windows.select(self.shape.group_columns),
        )
        if moved.is_empty():
            return touched, self.empty_cells, late
        removed = stored.join(moved, on=self.shape.group_columns, how="semi", nulls_equal=True)
        return touched, removed.with_columns(pl.lit(value=True).alias(IS_GONE)), late

    @cached_property
    def _no_touched(self) -> pl.DataFrame:
        return self.empty_cells.with_columns(pl.lit(0, pl.Int64).alias(ARRIVED_ROWS))

    def _new_cells(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What the rows of a batch come to, each window by itself."""
        time = pl.col(ROW_TIME).filter(pl.col(WATERMARK).is_null() | (pl.col(ROW_TIME) >= pl.col(WATERMARK)))
        count = pl.len().cast(pl.Int64)
        extra = [
            count.alias(ARRIVED_ROWS),
            count.alias(NEW_ROWS),
            time.min().alias(LOWEST_TIME),
            time.max().alias(HIGHEST_TIME),
            pl.col(ROW_TIME).min().alias(FIRST_TIME),
        ]
        cells = self.shape.partials.from_rows(rows, group=(START, END), extra=extra)
        new_partials = (
            [pl.col(c).alias(f"~{c}") for c in self.shape.partials.value_columns]
            if self.window_panes.is_discarding
            else []
        )
        number = pl.lit(0, pl.Int64)
        counts = [number.alias(c) for c in (PANE_COUNT, SETTLED_COUNT, PANES_BEFORE, SETTLED_BEFORE)]
        return cells.with_columns(
            *new_partials, *counts, self.window_panes.no_shown_values.alias(SHOWN_VALUES)
        )

    def _touched_cells(self, grown: GrownWindows, stored: pl.DataFrame, times: BatchTimes) -> pl.DataFrame:
        """Cells with the rows of this batch, and their trigger states after these rows."""
        new_cells = self._new_cells(grown.rows)
        parts = stored.join(grown.merged_from, on=self.shape.group_columns, how="inner", nulls_equal=True)
        if grown.moved_windows.height:
            is_unmoved = (pl.col(START) == pl.col(MERGED_START)) & (pl.col(END) == pl.col(MERGED_END))
            parts = pl.concat(
                [parts.filter(is_unmoved), self.window_panes.mark_grown(parts.filter(~is_unmoved))]
            )
        parts = parts.drop(START, END).rename({MERGED_START: START, MERGED_END: END})
        all_cells = pl.concat(
            [
                new_cells.with_columns(pl.lit(None, pl.String).alias(TRIGGER_STATE)),
                parts.with_columns(pl.lit(0, pl.Int64).alias(ARRIVED_ROWS)),
            ],
            how="diagonal",
        )
        cells = self._merge_cells(all_cells)
        start = pl.when(pl.col(START) == FOREVER[0]).then(pl.col(BASE_TIME)).otherwise(pl.col(START))
        has_watermark = times.lateness_time != BEFORE_ALL or not self._needs_window_start
        base = pl.lit(times.lateness_time, pl.Int64) if has_watermark else start
        cells = cells.with_columns(
            (pl.col(END) <= times.lateness_time).alias(WAS_PASSED), base.alias(BASE_TIME)
        )
        triggered = self.trigger_columns.add_rows(
            cells,
            (times.lateness_time, times.clock),
            grown.rows,
            merges=self.operator.aggregation.windowing.window.merging,
        )
        return triggered.with_columns(
            pl.lit(value=False).alias(IS_CLOSED), pl.lit(value=False).alias(IS_GONE)
        )

    def _merge_cells(self, all_cells: pl.DataFrame) -> pl.DataFrame:
        """One cell per key and window, with the trigger states of all cells that it is merged from."""
        state = pl.col(TRIGGER_STATE).drop_nulls().sort().alias(MERGED_STATES)
        sums = pl.col(ARRIVED_ROWS, NEW_ROWS, PANE_COUNT, SETTLED_COUNT, PANES_BEFORE, SETTLED_BEFORE).sum()
        extra = [
            state,
            sums,
            pl.col(LOWEST_TIME, FIRST_TIME).min(),
            pl.col(FIRST_TIME).filter(pl.col(TRIGGER_STATE).is_null()).min().alias(BASE_TIME),
            pl.col(HIGHEST_TIME).max(),
            pl.col(SHOWN_VALUES).explode(empty_as_null=False),
        ]
        cells = self.shape.partials.merge(all_cells, group=(START, END), extra=extra)
        if not self.window_panes.is_discarding:
            return cells
        new_values = self.window_panes.merge_new(all_cells)
        return cells.join(new_values, on=self.shape.group_columns, how="left", nulls_equal=True)

    def _fire(
        self,
        stored: pl.DataFrame,
        touched: pl.DataFrame,
        removed: pl.DataFrame,
        times: BatchTimes,
        added_masks: list[pl.Expr],
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, cells to write."""
        expires = pl.col(END) + self.operator.horizon <= times.after
        due_cells = stored.filter(~pl.col(IS_CLOSED) & self._is_due(times))
        if due_cells.height and (touched.height or removed.height):
            touched_groups = pl.concat(
                [touched.select(self.shape.group_columns), removed.select(self.shape.group_columns)]
            )
            due_cells = due_cells.join(
                touched_groups, on=self.shape.group_columns, how="anti", nulls_equal=True
            )
        if due_cells.is_empty() and touched.is_empty():
            return self.shape.empty_panes, self.shape.empty_changes, removed
        asked_cells = touched.with_columns(pl.lit(value=True).alias(IS_ASKED))
        if due_cells.height:
            due = (pl.col(DUE) <= times.after) | (pl.col(CLOCK_DUE) <= times.clock)
            due_asked = due_cells.with_columns(
                due.fill_null(value=False).alias(IS_ASKED),
                pl.lit(0, pl.Int64).alias(ARRIVED_ROWS),
                pl.lit(value=False).alias(IS_GONE),
            )
            asked_cells = pl.concat([asked_cells, due_asked], how="diagonal")
        asked_cells = self.trigger_columns.fire(asked_cells, times.after, times.clock)
        emitted, changes, cells = self.window_panes.emit(
            asked_cells.with_columns(expires.alias(EXPIRES)), (times.before, times.after), added_masks
        )
        cells = self.trigger_columns.schedule(cells, times.after, times.clock)
        changed = cells.select(self._written_columns)
        if removed.height:
            changed = pl.concat([changed, removed.select(self._written_columns)], how="vertical_relaxed")
        return emitted, changes, changed

    @cached_property
    def _needs_window_start(self) -> bool:
        """Whether it matters to the trigger where a window begins, as long as there is no watermark."""
        return any(
            isinstance(one, EveryEventTime) for one in walk(self.operator.aggregation.windowing.trigger)
        )

    @cached_property
    def _written_columns(self) -> list[str]:
        return [c for c in self.empty_cells.columns if c != STATE_VERSION]


def _digests(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(chunk.digest for chunk in chunks)


def _cache_cells(digests: tuple[str, ...], cells: pl.DataFrame) -> None:
    _cell_cache[digests] = cells
    while len(_cell_cache) > _MAX_CACHED:
        _cell_cache.popitem(last=False)


def clear_cache() -> None:
    """Drops what was remembered, so that it must be read again."""
    _cell_cache.clear()
