"""Aggregation over rows and panes that may be refined, in one union or as the sides of a join.

Rows are judged as elsewhere: those that a window no longer takes are refused by it. Then they are added to
the bag of each window that takes them, as panes are, which `chained.py` keeps and shows. Panes and what takes
them back are never refused, so the watermark waits for the operators that show them, also where those are
idle.

Example, windows of 10 s, no lateness, rows of topic B beside corrected counts:

    batch  watermark of B, of the counts   watermark   comes in              shown
    1      12 s, 8 s                       8 s         row at 11 s
    2      12 s, 10 s                      10 s        + count at 9.999 s    [0, 10): 1
    3      13 s, 11 s                      11 s        row at 9 s            it is late: 13 s is past 10 s
    4      13 s, 12 s                      12 s        - count at 9.999 s    [0, 10): withdrawn
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from millrace.durations import BEFORE_ALL
from millrace.engine.arrivals import BatchProgress
from millrace.engine.changelog import upstream_watermark, weight_of_change
from millrace.engine.exchange import Block, Body
from millrace.engine.lateness import WindowJudge, format_late_rows
from millrace.engine.operators.chained import ChainedOperator
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.slices import grid_of
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.values.columns import END, IS_CLOSED, ROW_TIME, START, WEIGHT, WINDOW_TIME


@dataclass(frozen=True, eq=False)
class RowsBesidePanesOperator:
    """The operator of an aggregation over rows and a changelog."""

    operator: Operator

    @cached_property
    def chained(self) -> ChainedOperator:
        """What keeps rows and panes, and shows what they come to."""
        return ChainedOperator(self.operator)

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """A batch: rows are judged, changes are applied, the watermark moves, panes fire."""
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "low": None}
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        rows = progress.load_rows([block for block in blocks if block.kind == "rows"])
        frames = [self._assign_windows(block.frame) for block in blocks if block.kind != "rows"]
        late = None
        if rows is not None:
            accepted, late = self._judge(rows, progress.before.dropped_until)
            frames.append(accepted)
        watermark = self._find_watermark(body, progress, saved["low"])
        values = {"progress": progress.after.to_json(), "low": watermark}
        result = self.chained.apply(state.with_values(id, values), frames, (saved["low"], watermark))
        return replace(result, late=late, progress=progress)

    def _find_watermark(self, body: Body, progress: BatchProgress, old: int | None) -> int | None:
        """The least of the channels that are not idle, and of all operators whose panes come in."""
        upstream, low = upstream_watermark(self.operator, body, None), progress.after.low_watermark
        if upstream is None or low is None:
            return old
        return max(min(upstream, low), BEFORE_ALL if old is None else old)

    def _assign_windows(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Changes in the windows that are set here, each by its event time."""
        if not self.operator.aggregation.sets_windows:
            return self.chained.assign_windows(changes)
        grid, at = grid_of(self.operator.aggregation.windowing), pl.col("event_time")
        ends = pl.int_ranges(grid.first_end(at), grid.last_end(at) + 1, grid.window.every).alias(END)
        in_windows = changes.with_columns(weight_of_change(), ends).explode(END)
        return in_windows.select(*self.chained.bag.identity_columns, WEIGHT)

    def _judge(
        self, rows: pl.DataFrame, dropped_until: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows in each window that takes them, and those that some window refuses."""
        node = self.operator.aggregation
        no, number = pl.lit(value=False), pl.lit(0, pl.Int64)
        window = number.alias(START), number.alias(END), no.alias(IS_CLOSED)
        no_windows = node.inputs[0].schema.to_frame().select(*node.keys, *window).clear()
        judge = WindowJudge(node.windowing, list(node.keys))
        timed = rows.with_columns(pl.col(ROW_TIME).alias(WINDOW_TIME))
        judged = judge.judge(timed, no_windows, BEFORE_ALL if dropped_until is None else dropped_until)
        late = None if judged.verdicts.is_empty() else format_late_rows(rows, judged.verdicts)
        weight = pl.lit(1, pl.Int64).alias(WEIGHT)
        return judged.grown.rows.select(*self.chained.bag.identity_columns, weight), late
