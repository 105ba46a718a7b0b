"""Rows that are taken in order of event time: judged when they come, kept until the watermark has passed
them, then released.

Patterns, processors, joins with tables, and windows that rows cut all need rows in order. A row is released
when the watermark is past its time, because then no earlier row can come any more. A row behind the watermark
is refused (`lateness.py`): the rows that come after it in event time may have been released already.

Example, with a delay of 2 s:

    batch  rows at         watermark  released   waiting   refused
    1      10 s, 13 s      11 s       10 s       13 s
    2      12 s, 16 s      14 s       12 s, 13 s 16 s
    3      11 s, 17 s      15 s       -          16 s, 17 s  11 s: 12 s and 13 s are gone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine import lateness
from millrace.engine.arrivals import BatchProgress
from millrace.engine.exchange import Block, Body
from millrace.engine.operators.contract import OperatorResult, divide_panes
from millrace.engine.plan import Operator
from millrace.engine.state import Layout, SlotState, add_missing_columns, concat_frames, few_frames
from millrace.values.columns import ROW_TIME, WINDOW_INPUT

Judge: TypeAlias = Callable[[pl.DataFrame | None], tuple[pl.DataFrame | None, pl.DataFrame | None]]
"""Divides the rows of a batch into those that wait, with the columns that are kept,
and those that are refused.
"""


@dataclass(frozen=True)
class OrderedBatch:
    """A batch whose rows are in order."""

    operator: Operator
    progress: BatchProgress
    state: SlotState
    """With the rows that wait."""
    rows: pl.DataFrame | None
    """The rows that are released; None: neither came any nor did any wait."""
    late: pl.DataFrame | None
    version: int
    """The number of the batch, for `KeyedTable`."""
    old_watermark: int
    watermark: int
    """Rows before this are released."""
    output_watermark: int | None
    """What follows the operator may go by this."""
    old_output_watermark: int | None
    saved: Mapping[str, Any] = field(default_factory=dict)
    """What is to be stored of this besides rows."""

    @property
    def is_ended(self) -> bool:
        """Whether no row follows."""
        return self.progress.is_ended

    @property
    def deadline(self) -> int:
        """Up to which time everything that waits for time is due."""
        return END_OF_STREAM if self.is_ended else self.watermark

    def sorted(self, empty: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
        """The released rows in order; `empty` where there are none."""
        return empty if self.rows is None else self.rows.sort(order)

    def result(
        self, state: SlotState, panes: pl.DataFrame, side_outputs: Mapping[str, pl.DataFrame] | None = None
    ) -> OperatorResult:
        """What the batch did: panes that are each shown once."""
        id = self.operator.id
        values = {**(state.values.get(id) or {}), **self.saved}
        shown, changes = divide_panes(self.operator, panes)
        return OperatorResult(
            state.with_values(id, values),
            self.output_watermark,
            shown,
            changes,
            self.late,
            self.progress,
            side_outputs or {},
        )


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """The rows of one input of an operator."""

    operator: Operator
    columns: Sequence[str]
    """What is kept of a row besides its key."""
    in_processing_time: bool = False
    """Whether rows are taken as they come, with the clock as their watermark."""
    table: str = "waiting"
    input_index: int = 0
    lateness: int = 0
    """How far behind its watermark a row may still be taken; it is released at once, behind later ones."""

    def take(
        self, state: SlotState, body: Body, blocks: Sequence[Block], judge: Judge | None = None
    ) -> OrderedBatch:
        """A batch: rows behind their watermark are refused, the others wait;
        those before the new one are released in order.
        """
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "seq": 0, "time": BEFORE_ALL, "low": None}
        progress = BatchProgress.of(self.operator, body, saved["progress"])
        rows, late = (judge or self.judge)(progress.load_rows(blocks))
        watermark = END_OF_STREAM if self.in_processing_time or progress.is_ended else progress.watermark
        output_watermark = progress.output_watermark
        if self.in_processing_time and not progress.is_ended:
            output_watermark = max(saved["low"] or BEFORE_ALL, body.now)
        state, released = self.release(state, rows, saved["time"], watermark)
        version = saved["seq"] + 1
        values = {
            "progress": progress.after.to_json(),
            "seq": version,
            "time": BEFORE_ALL if self.in_processing_time else watermark,
            "low": output_watermark,
        }
        times = (saved["time"], watermark, output_watermark, saved["low"])
        return OrderedBatch(self.operator, progress, state, released, late, version, *times, values)

    def judge(self, rows: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The rows that wait now, and those that come too late to be taken in order."""
        if rows is None:
            return None, None
        is_behind = lateness.never() if self.in_processing_time else lateness.is_behind(self.lateness)
        accepted, late = lateness.split_late(rows, is_behind)
        if WINDOW_INPUT in self.columns and WINDOW_INPUT not in accepted.columns:
            accepted = accepted.with_columns(pl.lit(None, pl.Boolean).alias(WINDOW_INPUT))
        return accepted.select(*self.operator.node.keys, *self.columns), late

    def release(
        self, state: SlotState, rows: pl.DataFrame | None, old_watermark: int, watermark: int
    ) -> tuple[SlotState, pl.DataFrame | None]:
        """The rows that are before the watermark now; the others are kept, each until it is."""
        id, is_released = self.operator.id, pl.col(ROW_TIME) < watermark
        layout = Layout(
            pl.col(ROW_TIME), pl.col(ROW_TIME), lambda frame: frame.filter(pl.col(ROW_TIME) >= old_watermark)
        )
        chunks = [chunk for chunk in state.table(id, self.table).chunks if chunk.min_end < watermark]
        is_due = is_released & (pl.col(ROW_TIME) >= old_watermark)
        released = [frame.filter(is_due) for frame in few_frames([chunk.frame for chunk in chunks])]
        if rows is not None:
            mask = rows[ROW_TIME] < watermark
            is_any = mask.any()
            released.append(rows.filter(mask) if is_any else rows.clear())
            state = state.append(id, self.table, rows.filter(~mask) if is_any else rows, layout)
        state = state.expire(id, self.table, watermark - 1)
        return state, concat_frames(self._add_new_fields(released)) if released else None

    @cached_property
    def _fields(self) -> pl.Schema:
        return self.operator.node.inputs[self.input_index].schema

    def _add_new_fields(self, frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """Rows that waited, with the fields that their type has got since: null,
        as in records that lack them.
        """
        fields = self._fields
        expected = [name for name in fields if name in self.columns]
        if all({*expected} <= {*frame.columns} for frame in frames):
            return frames
        newest = frames[-1].columns
        is_complete = {*expected} <= {*newest}
        order = newest if is_complete else [*expected, *(name for name in newest if name not in expected)]
        schema = {name: fields[name] if name in fields else frames[-1].schema[name] for name in order}
        return [add_missing_columns(frame, schema) for frame in frames]
