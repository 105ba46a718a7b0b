"""Rows to windows, on columns: `_start` and `_end` of every window that a row's time falls into."""

from __future__ import annotations

import polars as pl

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

WINDOW_INPUT = "_place"
"""What else a row says of its windows: an offset, a value whose changes cut windows, or whether it is the last of its window."""


def assign_windows(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    """A row for each window that contains the time `_at`."""
    match window:
        case GlobalWindow():
            return rows.with_columns(
                pl.lit(FOREVER[0], pl.Int64).alias("_start"), pl.lit(FOREVER[1], pl.Int64).alias("_end")
            )
        case Sessions(gap=gap):
            return rows.with_columns(pl.col("_at").alias("_start"), (pl.col("_at") + gap).alias("_end"))
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
    last = (pl.col("_at") - offset) // every * every + offset
    first = (pl.col("_at") - size - offset) // every * every + offset + every
    starts = pl.int_ranges(first, last + 1, every) if size > every else last
    frame = rows.with_columns(starts.alias("_start"))
    if size > every:
        frame = frame.explode("_start", empty_as_null=False)
    return frame.with_columns((pl.col("_start") + size).alias("_end"))


def _assign_by_user(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    times = rows["_at"].unique().to_list()
    windows = [(at, start, end) for at in times for start, end in window.assign(at)]
    assigned = pl.DataFrame(
        windows, schema={"_at": pl.Int64, "_start": pl.Int64, "_end": pl.Int64}, orient="row"
    )
    return rows.join(assigned, on="_at", how="inner", maintain_order="left")
