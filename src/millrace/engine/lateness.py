"""Which windows take the rows of a batch, and which rows are refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.engine.operators.assign import assign_windows, judge_sessions, merge_windows
from millrace.graph import Windowing

MIN_TIME = -(2**62)
_NO_VERDICTS = pl.DataFrame(schema={"_row": pl.UInt32, "reason": pl.String, "missed": pl.Int64})


@dataclass(frozen=True)
class JudgedRows:
    """Rows with the windows that they are part of now, the windows held before that those are made of, and what was refused."""

    rows: pl.DataFrame
    merged_from: pl.DataFrame
    """Key, `_start` and `_end` of windows held, with the window that each has become part of: `_from`, `_to`."""
    verdicts: pl.DataFrame
    """`_row`, `reason`, `missed`."""

    @cached_property
    def moved_windows(self) -> pl.DataFrame:
        """Those of the parts that are no more: they grew, or into another."""
        return self.merged_from.filter(
            (pl.col("_start") != pl.col("_from")) | (pl.col("_end") != pl.col("_to"))
        )


@dataclass(frozen=True)
class LatenessJudge:
    """How rows are judged for one operator."""

    windowing: Windowing
    keys: list[str]

    def judge(
        self, rows: pl.DataFrame, open_windows: pl.DataFrame, dropped_until: int = MIN_TIME
    ) -> JudgedRows:
        """`held`: the windows there are (`_start`, `_end`, `_closed`); those that end up to `dropped` are no more for any row."""
        row_windows = assign_windows(rows, self.windowing.assigner)
        if self.windowing.window.merging:
            return self._judge_merging(row_windows, open_windows, dropped_until)
        late = pl.col("_ahead") | self._is_late(pl.col("_end"), dropped_until)
        row_windows = row_windows.with_columns(late.alias("_late"), pl.lit(value=False).alias("_shut"))
        group = [*self.keys, "_start", "_end"]
        closed = open_windows.filter("_closed").select(*group, pl.lit(value=True).alias("_done"))
        if closed.height:
            row_windows = row_windows.join(
                closed, on=group, how="left", nulls_equal=True, maintain_order="left"
            )
            row_windows = row_windows.with_columns(
                pl.col("_shut") | pl.col("_done").fill_null(value=False)
            ).drop("_done")
        accepted = row_windows.filter(~pl.col("_late") & ~pl.col("_shut")).drop("_late", "_shut")
        touched = accepted.select(group).unique()
        touched_windows = open_windows.select(group).join(touched, on=group, how="semi", nulls_equal=True)
        parts = touched_windows.with_columns(pl.col("_start").alias("_from"), pl.col("_end").alias("_to"))
        return JudgedRows(accepted, parts, _summarize_verdicts(row_windows))

    def _is_late(self, end: pl.Expr, dropped_until: int) -> pl.Expr:
        """Whether a window is gone for a row; by the clock none ever is."""
        if self.windowing.is_processing_time:
            return pl.lit(value=False)
        return (pl.col("_w") >= end + self.windowing.lateness).fill_null(value=False) | (end <= dropped_until)

    def _judge_merging(
        self, row_windows: pl.DataFrame, open_windows: pl.DataFrame, dropped_until: int
    ) -> JudgedRows:
        """Sessions: a row that touches a closed one is refused, and one that is late by itself is judged by the session it would join."""
        late = pl.col("_ahead") | self._is_late(pl.col("_end"), dropped_until)
        row_windows = row_windows.with_columns(
            pl.col("_ahead").alias("_late"),
            late.alias("_doubtful"),
            self._touches_closed(row_windows, open_windows),
        )
        known = open_windows.filter(~pl.col("_closed")).select(*self.keys, "_start", "_end")
        if row_windows["_doubtful"].any():
            row_windows = self._judge_in_order(row_windows, known, dropped_until)
        accepted = row_windows.filter(~pl.col("_late") & ~pl.col("_shut"))
        reachable = known.join(
            accepted.select(self.keys).unique(), on=self.keys, how="semi", nulls_equal=True
        )
        no_row = pl.lit(None, pl.UInt32).alias("_row")
        both = pl.concat(
            [reachable.with_columns(no_row), accepted.select(*self.keys, "_start", "_end", "_row")],
            how="vertical_relaxed",
        )
        merged = merge_windows(both, self.keys, self.windowing.assigner)
        touched = merged.filter(pl.col("_row").is_not_null()).select(*self.keys, "_from", "_to").unique()
        parts = merged.filter(pl.col("_row").is_null()).drop("_row")
        parts = parts.join(touched, on=touched.columns, how="semi", nulls_equal=True).select(
            *self.keys, "_start", "_end", "_from", "_to"
        )
        own = ["_row", "_start", "_end"]
        windows = merged.filter(pl.col("_row").is_not_null()).select(*own, "_from", "_to").unique()
        accepted = (
            accepted.drop("_late", "_shut", "_doubtful")
            .join(windows, on=own, how="left")
            .drop("_start", "_end")
        )
        return JudgedRows(
            accepted.rename({"_from": "_start", "_to": "_end"}), parts, _summarize_verdicts(row_windows)
        )

    def _touches_closed(self, row_windows: pl.DataFrame, open_windows: pl.DataFrame) -> pl.Expr:
        """`_shut`: whether the row belongs to a session whose trigger has finished."""
        closed = open_windows.filter("_closed").select(
            *self.keys, pl.col("_start").alias("_s"), pl.col("_end").alias("_e")
        )
        if closed.is_empty():
            return pl.lit(value=False).alias("_shut")
        candidates = row_windows.select(*self.keys, "_row", "_start", "_end").join(
            closed, on=self.keys, how="inner", nulls_equal=True
        )
        merge = self.windowing.assigner.merge
        rows = [
            row
            for row, s, e, ds, de in candidates.select("_row", "_start", "_end", "_s", "_e").iter_rows()
            if len(merge(sorted({(s, e), (ds, de)}))) == 1
        ]
        return pl.col("_row").is_in(sorted(set(rows))).alias("_shut")

    def _judge_in_order(
        self, row_windows: pl.DataFrame, known: pl.DataFrame, dropped_until: int
    ) -> pl.DataFrame:
        """Rows of keys in doubt, one after the other, in the order in which rows are taken."""
        ordered = row_windows.filter(~pl.col("_late")).sort("_t", "_src", "_off")
        keys = ordered.filter("_doubtful").select(self.keys).unique()
        watermark = pl.lit(None, pl.Int64).alias("_w") if self.windowing.is_processing_time else pl.col("_w")
        rows = self._rows_by_key(
            ordered.select(*self.keys, "_row", "_start", "_end", watermark, "_shut"), keys
        )
        windows = self._rows_by_key(known, keys)
        verdicts: list[tuple[int, str]] = []
        for key, own_rows in rows.items():
            verdicts += judge_sessions(
                own_rows,
                windows.get(key, []),
                self.windowing.assigner,
                (self.windowing.lateness, dropped_until),
            )
        late = [row for row, reason in verdicts if reason == "late"]
        shut_rows = [row for row, reason in verdicts if reason == "closed"]
        row = pl.col("_row")
        return row_windows.with_columns(
            pl.col("_late") | row.is_in(late), (pl.col("_shut") | row.is_in(shut_rows)) & ~row.is_in(late)
        )

    def _rows_by_key(self, frame: pl.DataFrame, keys: pl.DataFrame) -> dict[Any, list[Any]]:
        """The rows of some keys as plain values, key by key."""
        selected = frame.join(keys, on=self.keys, how="semi", nulls_equal=True, maintain_order="left")
        parts = selected.partition_by(self.keys, as_dict=True, maintain_order=True, include_key=False)
        return {key: part.rows() for key, part in parts.items()}


def _summarize_verdicts(row_windows: pl.DataFrame) -> pl.DataFrame:
    """For each row that some window refused, why, and how many did."""
    refused = row_windows.filter(pl.col("_late") | pl.col("_shut"))
    if refused.is_empty():
        return _NO_VERDICTS
    reason = (
        pl.when(pl.col("_ahead").any())
        .then(pl.lit("future"))
        .when(pl.col("_late").any())
        .then(pl.lit("late"))
        .otherwise(pl.lit("closed"))
    )
    return refused.group_by("_row").agg(reason.alias("reason"), pl.len().cast(pl.Int64).alias("missed"))
