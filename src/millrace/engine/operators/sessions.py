"""Sessions, and all windows that grow into each other: which windows of a key become one.

A row begins as a session of its own, `[time, time + gap)`. Sessions of one key that overlap or touch are one,
from the first start to the last end. So a row may extend a session, and a row between two sessions makes one
of both.

Example, a gap of 10 s; cells are what is stored of a key and window:

    row at   its own window   sessions of the key after it
    100 s    [100, 110)       [100, 110)
    115 s    [115, 125)       [100, 110)  [115, 125)
    107 s    [107, 117)       [100, 125)               touches both: they merge, their panes are taken back
    125 s    [125, 135)       [100, 135)               the ends touch: 125 s is the end of the session

Invariant: stored sessions of a key are apart from each other. So it suffices to merge the rows of a batch
with the sessions of their keys, once and in any order: the result is the same as of one row after the other.
Which rows are late does depend on the order, and is decided in `lateness.py`, one row after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.values.columns import END, MERGED_END, MERGED_START, ROW_INDEX, SESSION, START
from millrace.windows import Sessions, Window, WindowFn


@dataclass(frozen=True)
class GrownWindows:
    """The windows that rows are part of now, and the stored windows that those are made of."""

    rows: pl.DataFrame
    """The rows, with `_start` and `_end` of the window that each is part of."""
    merged_from: pl.DataFrame
    """Key, `_start` and `_end` of stored windows,
    with the window that each has become part of: `_from`, `_to`.
    """

    @cached_property
    def moved_windows(self) -> pl.DataFrame:
        """The stored windows that are no more: they grew, or into another."""
        return self.merged_from.filter(
            (pl.col(START) != pl.col(MERGED_START)) | (pl.col(END) != pl.col(MERGED_END))
        )


def grow_windows(rows: pl.DataFrame, stored: pl.DataFrame, keys: list[str], window: WindowFn) -> GrownWindows:
    """Merges the windows of rows (`_row`, `_start`,
    `_end`) with the stored ones of their keys (`_start`, `_end`).
    """
    reachable = stored.join(rows.select(keys).unique(), on=keys, how="semi", nulls_equal=True)
    no_row = pl.lit(None, pl.UInt32).alias(ROW_INDEX)
    both = pl.concat(
        [reachable.with_columns(no_row), rows.select(*keys, START, END, ROW_INDEX)],
        how="vertical_relaxed",
    )
    merged = merge_windows(both, keys, window)
    touched = merged.filter(pl.col(ROW_INDEX).is_not_null()).select(*keys, MERGED_START, MERGED_END).unique()
    parts = merged.filter(pl.col(ROW_INDEX).is_null()).drop(ROW_INDEX)
    parts = parts.join(touched, on=touched.columns, how="semi", nulls_equal=True).select(
        *keys, START, END, MERGED_START, MERGED_END
    )
    own = [ROW_INDEX, START, END]
    windows = merged.filter(pl.col(ROW_INDEX).is_not_null()).select(*own, MERGED_START, MERGED_END).unique()
    rows = rows.join(windows, on=own, how="left").drop(START, END)
    return GrownWindows(rows.rename({MERGED_START: START, MERGED_END: END}), parts)


def merge_windows(windows: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    """Windows of many keys (`_start`, `_end`),
    each with the window that it becomes part of (`_from`, `_to`).
    """
    if not isinstance(window, Sessions):
        return _merge_by_user(windows, keys, window)
    ordered = windows.sort(*keys, START)
    furthest_end = pl.col(END).cum_max().shift(1).over(keys)
    is_apart = (furthest_end.is_null() | (pl.col(START) > furthest_end)).cast(pl.Int64)
    ordered = ordered.with_columns(is_apart.cum_sum().alias(SESSION))
    return ordered.with_columns(
        pl.col(START).min().over(SESSION).alias(MERGED_START),
        pl.col(END).max().over(SESSION).alias(MERGED_END),
    ).drop(SESSION)


def _merge_by_user(windows: pl.DataFrame, keys: list[str], window: WindowFn) -> pl.DataFrame:
    parts = []
    for part in windows.partition_by(keys, maintain_order=True):
        distinct = sorted(set(part.select(START, END).rows()))
        merged = [(*single, *hull_of(group)) for group in window.merge(distinct) for single in group]
        schema = dict.fromkeys((START, END, MERGED_START, MERGED_END), pl.Int64)
        parts.append(
            part.join(pl.DataFrame(merged, schema=schema, orient="row"), on=[START, END], how="left")
        )
    return (
        pl.concat(parts)
        if parts
        else windows.with_columns(pl.col(START).alias(MERGED_START), pl.col(END).alias(MERGED_END))
    )


def hull_of(group: Sequence[Window]) -> Window:
    """The window that a group of windows becomes."""
    return min(start for start, _ in group), max(end for _, end in group)


def find_group(session: Window, open_windows: Sequence[Window], window: WindowFn) -> list[Window]:
    """The windows that become one when this one is added to those of its key; it is among them."""
    return next(group for group in window.merge(sorted({*open_windows, session})) if session in group)
