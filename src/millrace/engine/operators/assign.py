"""Rows to windows, on columns: `_start` and `_end` of every window that a row's time falls into; sessions that touch become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from millrace.windows import (
    FOREVER,
    Delta,
    GlobalWindow,
    Punctuated,
    Sessions,
    Sliding,
    Unaligned,
    Window,
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


def merge_windows(windows: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    """Windows of many keys (`_start`, `_end`), each with the window that it becomes part of (`_from`, `_to`)."""
    if not isinstance(window, Sessions):
        return _merge_by_user(windows, keys, window)
    ordered = windows.sort(*keys, "_start")
    furthest_end = pl.col("_end").cum_max().shift(1).over(keys)
    is_apart = (furthest_end.is_null() | (pl.col("_start") > furthest_end)).cast(pl.Int64)
    ordered = ordered.with_columns(is_apart.cum_sum().alias("_group"))
    return ordered.with_columns(
        pl.col("_start").min().over("_group").alias("_from"), pl.col("_end").max().over("_group").alias("_to")
    ).drop("_group")


def _merge_by_user(windows: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    parts = []
    for part in windows.partition_by(keys, maintain_order=True):
        distinct = sorted(set(part.select("_start", "_end").rows()))
        merged = [(*single, *hull_of(group)) for group in window.merge(distinct) for single in group]
        schema = dict.fromkeys(("_start", "_end", "_from", "_to"), pl.Int64)
        parts.append(
            part.join(pl.DataFrame(merged, schema=schema, orient="row"), on=["_start", "_end"], how="left")
        )
    return (
        pl.concat(parts)
        if parts
        else windows.with_columns(pl.col("_start").alias("_from"), pl.col("_end").alias("_to"))
    )


def hull_of(group: Sequence[Window]) -> Window:
    """The window that a group of windows becomes."""
    return min(start for start, _ in group), max(end for _, end in group)


def judge_sessions(
    rows: Sequence[tuple[int, int, int, int | None, bool]],
    open_sessions: Sequence[Window],
    window: WindowFn,
    limits: tuple[int, int],
) -> Iterator[tuple[int, str]]:
    """The rows of one key taken one after the other, each judged by the session that it would be part of: which are refused, and why.

    A row is its number, its own window's start and end, its watermark, and whether it touches a closed session. `patience`: the lateness, and the end
    up to which windows were dropped.
    """
    open_windows, (lateness, dropped_until) = list(open_sessions), limits
    for number, start, end, watermark, touches_finished in rows:
        session = (start, end)
        group = next(group for group in window.merge(sorted({*open_windows, session})) if session in group)
        merged = hull_of(group)
        if merged[1] <= dropped_until or (watermark is not None and watermark >= merged[1] + lateness):
            yield number, "late"
        elif touches_finished:
            yield number, "closed"
        else:
            open_windows = [*(other for other in open_windows if other not in group), merged]
