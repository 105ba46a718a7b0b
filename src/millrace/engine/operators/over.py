"""Operator `over`: every row goes on beside columns computed from the rows of its key around it.

Rows are taken in order, so whatever a row looks back at has come before it. What later rows look back at is
all that is kept, by four parts, each of which adds its columns and keeps its own table:

    part                            columns                              keeps
    over_rows.RowsBefore            lag, frames of so many rows          the last rows of each key
    over_range.RowsInRange          frames of so much time               rows until the watermark has passed
                                                                         them by the range
    over_running.RunningTotals      frames without a beginning, numbers  one running aggregate per key
    over_lead.FollowingRows         lead                                 rows that wait for later ones

Example, `over(rows=2, before=lag("v"), total=sum("v"))`, rows of one key:

    row at   10 s    12 s    15 s
    v        1       2       4
    before   null    1       2
    total    1       3       6

What is kept then is the row at 15 s alone. With a lateness, `over_corrections.py` takes these parts instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from millrace.aggregates import ORDER
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, number_pairs
from millrace.engine.operators.over_frames import released_rows, to_panes, waiting_rows
from millrace.engine.operators.over_lead import FollowingRows
from millrace.engine.operators.over_range import RowsInRange
from millrace.engine.operators.over_rows import RowsBefore
from millrace.engine.operators.over_running import RunningTotals
from millrace.engine.ordered_rows import OrderedRows
from millrace.engine.plan import Operator
from millrace.engine.state import SlotState
from millrace.graph.build.over import Over

Part: TypeAlias = RowsBefore | RowsInRange | RunningTotals


def past_parts(operator: Operator, node: Over) -> list[Part]:
    """The parts that look back."""
    kinds: tuple[type[Part], ...] = (RowsBefore, RowsInRange, RunningTotals)
    return [part(operator, node) for part in kinds if part.is_needed(node)]


@dataclass(frozen=True, eq=False)
class OverOperator:
    """Rows with columns computed from the rows around them, each shown once."""

    operator: Operator
    node: Over

    @cached_property
    def rows(self) -> OrderedRows:
        """The rows that wait until the watermark has passed them."""
        return waiting_rows(self.operator, self.node)

    @cached_property
    def _parts(self) -> list[Part | FollowingRows]:
        """What adds columns, in this order: rows that wait for later ones have all the others by then."""
        ahead = [FollowingRows(self.operator, self.node)] if self.node.leads else []
        return [*past_parts(self.operator, self.node), *ahead]

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> OperatorResult:
        """One batch: judge rows, release those in order, add their columns, keep what later rows need."""
        batch = self.rows.take(state, body, blocks)
        state, rows = batch.state, released_rows(self.node, batch)
        for part in self._parts:
            state, rows = part.add_columns(state, rows, batch)
        shown = to_panes(self.node, rows.sort(ORDER, maintain_order=True))
        return batch.result(state, number_pairs(shown, self.node.schema))
