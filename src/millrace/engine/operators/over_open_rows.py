"""The rows of the operator `over` that may still be corrected, with the columns shown beside them.

Nearly all rows are shown once. So each is stored when it comes, and again, as a newer version, only if it is
corrected; what it was before counts no more. A row is open until the watermark has passed it by the lateness.

Example, `before=lag("v")`, a lateness of 10 s; the row at 12 s comes late:

    batch  watermark  stored then (_row_id, _seq)                  open afterwards
    1      16 s       10 s (1, 1), 15 s before=v(10 s) (2, 1)      10 s, 15 s
    2      20 s       12 s (3, 2), 15 s before=v(12 s) (2, 2)      10 s, 12 s, 15 s
    3      24 s       -                                            15 s: 10 s and 12 s have closed
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.engine.state import Layout, SlotState, StateTable, few_frames
from millrace.values.columns import EXPIRES_AT, ROW_ID, STATE_VERSION

OPEN_ROWS = "correctable_rows"
"""The state table."""
_MAX_ROWS = 1 << 31
"""More than the rows of a batch."""


def row_ids(version: int) -> pl.Expr:
    """Numbers for the rows that come with a batch, which tell in which one they came."""
    return (pl.int_range(pl.len(), dtype=pl.Int64) + version * _MAX_ROWS).alias(ROW_ID)


@dataclass(frozen=True, eq=False)
class OpenRows:
    """The table of one operator."""

    operator_id: str
    empty: pl.DataFrame
    """No rows, in the columns that are stored."""

    def read(self, state: SlotState, keys: pl.DataFrame, since: int) -> pl.DataFrame:
        """The rows of some keys that were open at a time."""
        is_open = pl.col(EXPIRES_AT) > since
        frames = [
            frame.filter(is_open).join(keys, on=keys.columns, how="semi", nulls_equal=True)
            for frame in few_frames(self._table(state).between(since, END_OF_STREAM))
        ]
        return _newest(pl.concat([self.empty, *frames]))

    def closing(self, state: SlotState, old: int, now: int, columns: list[str]) -> pl.DataFrame:
        """The rows that close as the watermark moves from `old` to `now`; `columns`: some of those with which
        rows come.
        """
        closes = pl.col(EXPIRES_AT).is_between(old, now, closed="right")
        kept = [*columns, *([] if ROW_ID in columns else [ROW_ID]), STATE_VERSION]
        stored = few_frames(self._table(state).between(old, now))
        frames = [frame.filter(closes)[kept] for frame in stored]
        return _newest(pl.concat([self.empty[kept], *frames]))[columns]

    def append(self, state: SlotState, rows: pl.DataFrame, closed_until: int) -> SlotState:
        """State with rows, or newer versions of them, and without those that have closed."""
        is_open = pl.col(EXPIRES_AT) > closed_until
        time = pl.col(EXPIRES_AT)
        layout = Layout(time, time, lambda frame: _newest(frame.filter(is_open)))
        state = state.expire(self.operator_id, OPEN_ROWS, closed_until)
        return state.append(self.operator_id, OPEN_ROWS, rows.filter(is_open), layout)

    def _table(self, state: SlotState) -> StateTable:
        return state.table(self.operator_id, OPEN_ROWS)


def _newest(rows: pl.DataFrame) -> pl.DataFrame:
    """The newest version of each row. Few rows have a second one."""
    is_first = pl.col(STATE_VERSION) == pl.col(ROW_ID) // _MAX_ROWS
    if rows.is_empty():
        return rows
    corrected = rows.filter(~is_first)
    if corrected.is_empty():
        return rows
    newest = corrected.sort(STATE_VERSION).unique(ROW_ID, keep="last", maintain_order=True)
    return pl.concat([rows.filter(is_first).join(newest, on=ROW_ID, how="anti"), newest])
