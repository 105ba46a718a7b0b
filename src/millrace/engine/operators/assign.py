"""Rows to windows, on columns: `_start` and `_end` of every window that a row's time falls into; sessions that touch become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from millrace.windows import (
    FOREVER,
    Delta,
    Everything,
    Punctuated,
    Sessions,
    Sliding,
    Unaligned,
    Window,
    WindowFn,
)

PLACE = "_place"
"""What else a row says of its windows: an offset, a value whose changes cut windows, or whether it is the last of its window."""


def assigned(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    """A row for each window that contains the time `_at`."""
    match window:
        case Everything():
            return rows.with_columns(
                pl.lit(FOREVER[0], pl.Int64).alias("_start"), pl.lit(FOREVER[1], pl.Int64).alias("_end")
            )
        case Sessions(gap=gap):
            return rows.with_columns(pl.col("_at").alias("_start"), (pl.col("_at") + gap).alias("_end"))
        case Sliding(size=size, every=every, offset=offset):
            return _slid(rows, size, every, pl.lit(offset, pl.Int64))
        case Unaligned(size=size, every=every):
            return _slid(rows, size, every, (pl.col(PLACE).fill_null(0) % every + every) % every)
        case _:
            return _assigned_by_user(rows, window)


def placed(window: WindowFn) -> list[pl.Expr]:
    """`PLACE`, where the windows ask for it."""
    match window:
        case Unaligned(offset=asked) | Punctuated(expr=asked):
            return [asked.alias(PLACE)]
        case Delta(column=column):
            return [pl.col(column).alias(PLACE)]
        case _:
            return []


def least_end(window: WindowFn, at: pl.Expr) -> pl.Expr | None:
    """Where the earliest window of a row ends at the least; None: nobody knows without asking."""
    match window:
        case Everything():
            return pl.lit(FOREVER[1], pl.Int64)
        case Sessions(gap=gap):
            return at + gap
        case Sliding() | Unaligned():
            return at + 1
        case _:
            return None


def _slid(rows: pl.DataFrame, size: int, every: int, offset: pl.Expr) -> pl.DataFrame:
    last = (pl.col("_at") - offset) // every * every + offset
    first = (pl.col("_at") - size - offset) // every * every + offset + every
    starts = pl.int_ranges(first, last + 1, every) if size > every else last
    frame = rows.with_columns(starts.alias("_start"))
    if size > every:
        frame = frame.explode("_start", empty_as_null=False)
    return frame.with_columns((pl.col("_start") + size).alias("_end"))


def _assigned_by_user(rows: pl.DataFrame, window: WindowFn) -> pl.DataFrame:
    times = rows["_at"].unique().to_list()
    found = [(at, start, end) for at in times for start, end in window.assign(at)]
    table = pl.DataFrame(found, schema={"_at": pl.Int64, "_start": pl.Int64, "_end": pl.Int64}, orient="row")
    return rows.join(table, on="_at", how="inner", maintain_order="left")


def hulls(pieces: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    """Windows of many keys (`_start`, `_end`), each with the window that it becomes part of (`_from`, `_to`)."""
    if not isinstance(window, Sessions):
        return _hulls_by_user(pieces, keys, window)
    ordered = pieces.sort(*keys, "_start")
    reach = pl.col("_end").cum_max().shift(1).over(keys)
    apart = (reach.is_null() | (pl.col("_start") > reach)).cast(pl.Int64)
    ordered = ordered.with_columns(apart.cum_sum().alias("_group"))
    return ordered.with_columns(
        pl.col("_start").min().over("_group").alias("_from"), pl.col("_end").max().over("_group").alias("_to")
    ).drop("_group")


def _hulls_by_user(pieces: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    parts = []
    for part in pieces.partition_by(keys, maintain_order=True):
        own = sorted(set(part.select("_start", "_end").rows()))
        table = [(*one, *hull(group)) for group in window.merge(own) for one in group]
        schema = dict.fromkeys(("_start", "_end", "_from", "_to"), pl.Int64)
        parts.append(
            part.join(pl.DataFrame(table, schema=schema, orient="row"), on=["_start", "_end"], how="left")
        )
    return (
        pl.concat(parts)
        if parts
        else pieces.with_columns(pl.col("_start").alias("_from"), pl.col("_end").alias("_to"))
    )


def hull(group: Sequence[Window]) -> Window:
    """The window that a group of windows becomes."""
    return min(start for start, _ in group), max(end for _, end in group)


def walked(
    rows: Sequence[tuple[int, int, int, int | None, bool]],
    held: Sequence[Window],
    window: WindowFn,
    patience: tuple[int, int],
) -> Iterator[tuple[int, str]]:
    """The rows of one key taken one after the other, each judged by the session that it would be part of: which are refused, and why.

    A row is its number, its own window's start and end, its watermark, and whether it touches a closed session. `patience`: the lateness, and the end
    up to which windows were dropped.
    """
    open_windows, (lateness, dropped) = list(held), patience
    for number, start, end, watermark, touches in rows:
        own = (start, end)
        group = next(group for group in window.merge(sorted({*open_windows, own})) if own in group)
        merged = hull(group)
        if merged[1] <= dropped or (watermark is not None and watermark >= merged[1] + lateness):
            yield number, "late"
        elif touches:
            yield number, "closed"
        else:
            open_windows = [*(one for one in open_windows if one not in group), merged]
