"""Operator `final`: of a changelog the rows that hold when their windows can no longer change.

What is kept is a bag of rows: how often each was added less how often it was taken back. When the watermark
has passed the end of a row's window and the lateness of all operators before this one, nothing can correct
the row any more. It is then a row like those of a topic, at the last millisecond of its window, and any
operator can follow. The output watermark is behind by the lateness.

Example, a count in windows of 10 s with a lateness of 5 s:

    batch  watermark  comes in                  kept     goes out
    1      11 s       + [0 s, 10 s) n=2         n=2
    2      13 s       - n=2, + n=3 (corrected)  n=3
    3      15 s       -                         -        n=3, at 9.999 s; output watermark 10 s
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace import graph, panes
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.changelog import add_up, repeat_by_weight, upstream_watermark, weight_of_change
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, divide_panes, number_pairs
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState
from millrace.values.columns import WEIGHT

ROWS = "rows"
"""State table: the bag."""


@dataclass(frozen=True, eq=False)
class FinalOperator:
    """Shows the rows of a changelog once, when they are final."""

    operator: Operator
    node: graph.FinalValues

    @cached_property
    def _identity(self) -> list[str]:
        """The columns in which two rows must agree to cancel each other."""
        return [name for name in self.node.schema if name not in panes.HISTORY_COLUMNS]

    @cached_property
    def _empty(self) -> pl.DataFrame:
        empty = self.node.inputs[0].schema.to_frame().select(self._identity)
        return empty.with_columns(pl.lit(0, pl.Int64).alias(WEIGHT))

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: changes are added up, the watermark moves, rows of windows that are over go out."""
        id, horizon = self.operator.id, self.operator.horizon
        old: int | None = state.values.get(id)
        watermark = upstream_watermark(self.operator, body, old)
        output_watermark = (
            watermark if watermark is None or watermark >= END_OF_STREAM else watermark - horizon
        )
        over = BEFORE_ALL if output_watermark is None else output_watermark
        since = BEFORE_ALL if old is None else old - horizon
        end = pl.col("window_end")
        is_over = pl.lit(value=True) if over >= END_OF_STREAM else end <= over
        new = self._read_changes(blocks)
        frames = state.table(id, ROWS).between(since, over) if over > since else []
        stored = [frame.filter(is_over & (end > since)) for frame in frames]
        bag = add_up(pl.concat([*stored, new.filter(is_over)]), self._identity)
        layout = Layout(end, end, lambda frame: add_up(frame.filter(end > over), self._identity))
        state = state.append(id, ROWS, new.filter(~is_over), layout).expire(id, ROWS, over)
        shown, changes = divide_panes(self.operator, self._to_panes(bag))
        return OperatorResult(state.with_values(id, watermark), output_watermark, shown, changes)

    def _read_changes(self, blocks: list[Block]) -> pl.DataFrame:
        """What the changes of a batch come to."""
        changes = [block.frame.select(*self._identity, weight_of_change()) for block in blocks]
        return add_up(pl.concat([self._empty, *changes]), self._identity)

    def _to_panes(self, bag: pl.DataFrame) -> pl.DataFrame:
        """Each row as often as it weighs, at the end of its window."""
        rows = repeat_by_weight(bag.filter(pl.col(WEIGHT) > 0))
        last = pl.col("window_end") - 1
        shown = rows.with_columns(last.alias("event_time"), *panes.shown_once())
        return number_pairs(shown, self.node.schema)
