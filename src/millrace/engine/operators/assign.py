"""Rows to windows, on columns: `_start` and `_end` of every window that a row's time falls into."""

from __future__ import annotations

import polars as pl

from millrace.values.columns import END, START, WINDOW_INPUT, WINDOW_TIME
from millrace.windows import (
    FOREVER,
    Delta,
    GlobalWindow,
    Punctuated,
    Sessions,
    Sliding,
    Unaligned,
    WindowFn,
)


def assign_windows(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    """A row for each window that contains the time `_at`."""
    match window:
        case GlobalWindow():
            return rows.with_columns(
                pl.lit(FOREVER[0], pl.Int64).alias(START), pl.lit(FOREVER[1], pl.Int64).alias(END)
            )
        case Sessions(gap=gap):
            return rows.with_columns(pl.col(WINDOW_TIME).alias(START), (pl.col(WINDOW_TIME) + gap).alias(END))
        case Sliding(size=size, every=every, offset=offset):
            return _assign_sliding(rows, size, every, pl.lit(offset, pl.Int64))
        case Unaligned(size=size, every=every):
            return _assign_sliding(
                rows, size, every, (pl.col(WINDOW_INPUT).fill_null(0) % every + every) % every
            )
        case _:
            return _assign_by_user(rows, window)


def window_input(window: WindowFn) -> list[pl.Expr]:
    """`PLACE`, where the windows ask for it."""
    match window:
        case Unaligned(offset=expr) | Punctuated(expr=expr):
            return [expr.alias(WINDOW_INPUT)]
        case Delta(column=column):
            return [pl.col(column).alias(WINDOW_INPUT)]
        case _:
            return []


def earliest_end(window: WindowFn, at: pl.Expr) -> pl.Expr | None:
    """Where the earliest window of a row ends at the least; None: nobody knows without asking."""
    match window:
        case GlobalWindow():
            return pl.lit(FOREVER[1], pl.Int64)
        case Sessions(gap=gap):
            return at + gap
        case Sliding() | Unaligned():
            return at + 1
        case _:
            return None


def _assign_sliding(rows: pl.DataFrame, size: int, every: int, offset: pl.Expr) -> pl.DataFrame:
    last = (pl.col(WINDOW_TIME) - offset) // every * every + offset
    first = (pl.col(WINDOW_TIME) - size - offset) // every * every + offset + every
    starts = pl.int_ranges(first, last + 1, every) if size > every else last
    frame = rows.with_columns(starts.alias(START))
    if size > every:
        frame = frame.explode(START, empty_as_null=False)
    return frame.with_columns((pl.col(START) + size).alias(END))


def _assign_by_user(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    times = rows[WINDOW_TIME].unique().to_list()
    windows = [(at, start, end) for at in times for start, end in window.assign(at)]
    assigned = pl.DataFrame(
        windows, schema={WINDOW_TIME: pl.Int64, START: pl.Int64, END: pl.Int64}, orient="row"
    )
    return rows.join(assigned, on=WINDOW_TIME, how="inner", maintain_order="left")
