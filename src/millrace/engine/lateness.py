"""Which windows take the rows of a batch, and which rows are refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from millrace.engine.operators.assign import assigned, hulls, walked
from millrace.graph import Windowing

LEAST = -(2**62)
_NONE_REFUSED = pl.DataFrame(schema={"_row": pl.UInt32, "reason": pl.String, "missed": pl.Int64})


@dataclass(frozen=True)
class Taken:
    """Rows with the windows that they are part of now, the windows held before that those are made of, and what was refused."""

    rows: pl.DataFrame
    parts: pl.DataFrame
    """Key, `_start` and `_end` of windows held, with the window that each has become part of: `_from`, `_to`."""
    refused: pl.DataFrame
    """`_row`, `reason`, `missed`."""

    @cached_property
    def moved(self) -> pl.DataFrame:
        """Those of the parts that are no more: they grew, or into another."""
        return self.parts.filter((pl.col("_start") != pl.col("_from")) | (pl.col("_end") != pl.col("_to")))


@dataclass(frozen=True)
class Taking:
    """How rows are judged for one operator."""

    windowing: Windowing
    keys: list[str]

    def take(self, rows: pl.DataFrame, held: pl.DataFrame, dropped: int = LEAST) -> Taken:
        """`held`: the windows there are (`_start`, `_end`, `_closed`); those that end up to `dropped` are no more for any row."""
        wide = assigned(rows, self.windowing.places)
        if self.windowing.window.merging:
            return self._merging(wide, held, dropped)
        late = pl.col("_ahead") | self._late(pl.col("_end"), dropped)
        wide = wide.with_columns(late.alias("_late"), pl.lit(value=False).alias("_shut"))
        group = [*self.keys, "_start", "_end"]
        done = held.filter("_closed").select(*group, pl.lit(value=True).alias("_done"))
        if done.height:
            wide = wide.join(done, on=group, how="left", nulls_equal=True, maintain_order="left")
            wide = wide.with_columns(pl.col("_shut") | pl.col("_done").fill_null(value=False)).drop("_done")
        taken = wide.filter(~pl.col("_late") & ~pl.col("_shut")).drop("_late", "_shut")
        touched = taken.select(group).unique()
        same = held.select(group).join(touched, on=group, how="semi", nulls_equal=True)
        parts = same.with_columns(pl.col("_start").alias("_from"), pl.col("_end").alias("_to"))
        return Taken(taken, parts, _counted(wide))

    def _late(self, end: pl.Expr, dropped: int) -> pl.Expr:
        """Whether a window is gone for a row; by the clock none ever is."""
        if self.windowing.by_clock:
            return pl.lit(value=False)
        return (pl.col("_w") >= end + self.windowing.lateness).fill_null(value=False) | (end <= dropped)

    def _merging(self, wide: pl.DataFrame, held: pl.DataFrame, dropped: int) -> Taken:
        """Sessions: a row that touches a closed one is refused, and one that is late by itself is judged by the session it would join."""
        late = pl.col("_ahead") | self._late(pl.col("_end"), dropped)
        wide = wide.with_columns(
            pl.col("_ahead").alias("_late"), late.alias("_doubtful"), self._touches_closed(wide, held)
        )
        known = held.filter(~pl.col("_closed")).select(*self.keys, "_start", "_end")
        if wide["_doubtful"].any():
            wide = self._walk(wide, known, dropped)
        taken = wide.filter(~pl.col("_late") & ~pl.col("_shut"))
        pieces = known.join(taken.select(self.keys).unique(), on=self.keys, how="semi", nulls_equal=True)
        nothing = pl.lit(None, pl.UInt32).alias("_row")
        both = pl.concat(
            [pieces.with_columns(nothing), taken.select(*self.keys, "_start", "_end", "_row")],
            how="vertical_relaxed",
        )
        made = hulls(both, self.keys, self.windowing.places)
        touched = made.filter(pl.col("_row").is_not_null()).select(*self.keys, "_from", "_to").unique()
        parts = made.filter(pl.col("_row").is_null()).drop("_row")
        parts = parts.join(touched, on=touched.columns, how="semi", nulls_equal=True).select(
            *self.keys, "_start", "_end", "_from", "_to"
        )
        own = ["_row", "_start", "_end"]
        windows = made.filter(pl.col("_row").is_not_null()).select(*own, "_from", "_to").unique()
        taken = (
            taken.drop("_late", "_shut", "_doubtful").join(windows, on=own, how="left").drop("_start", "_end")
        )
        return Taken(taken.rename({"_from": "_start", "_to": "_end"}), parts, _counted(wide))

    def _touches_closed(self, wide: pl.DataFrame, held: pl.DataFrame) -> pl.Expr:
        """`_shut`: whether the row belongs to a session whose trigger has finished."""
        done = held.filter("_closed").select(
            *self.keys, pl.col("_start").alias("_s"), pl.col("_end").alias("_e")
        )
        if done.is_empty():
            return pl.lit(value=False).alias("_shut")
        met = wide.select(*self.keys, "_row", "_start", "_end").join(
            done, on=self.keys, how="inner", nulls_equal=True
        )
        merge = self.windowing.places.merge
        rows = [
            row
            for row, s, e, ds, de in met.select("_row", "_start", "_end", "_s", "_e").iter_rows()
            if len(merge(sorted({(s, e), (ds, de)}))) == 1
        ]
        return pl.col("_row").is_in(sorted(set(rows))).alias("_shut")

    def _walk(self, wide: pl.DataFrame, known: pl.DataFrame, dropped: int) -> pl.DataFrame:
        """Rows of keys in doubt, one after the other, in the order in which rows are taken."""
        ordered = wide.filter(~pl.col("_late")).sort("_t", "_src", "_off")
        keys = ordered.filter("_doubtful").select(self.keys).unique()
        watermark = pl.lit(None, pl.Int64).alias("_w") if self.windowing.by_clock else pl.col("_w")
        rows = self._by_key(ordered.select(*self.keys, "_row", "_start", "_end", watermark, "_shut"), keys)
        windows = self._by_key(known, keys)
        verdicts: list[tuple[int, str]] = []
        for key, mine in rows.items():
            verdicts += walked(
                mine, windows.get(key, []), self.windowing.places, (self.windowing.lateness, dropped)
            )
        late = [row for row, why in verdicts if why == "late"]
        shut_rows = [row for row, why in verdicts if why == "closed"]
        row = pl.col("_row")
        return wide.with_columns(
            pl.col("_late") | row.is_in(late), (pl.col("_shut") | row.is_in(shut_rows)) & ~row.is_in(late)
        )

    def _by_key(self, frame: pl.DataFrame, keys: pl.DataFrame) -> dict[Any, list[Any]]:
        """The rows of some keys as plain values, key by key."""
        mine = frame.join(keys, on=self.keys, how="semi", nulls_equal=True, maintain_order="left")
        parts = mine.partition_by(self.keys, as_dict=True, maintain_order=True, include_key=False)
        return {key: part.rows() for key, part in parts.items()}


def _counted(wide: pl.DataFrame) -> pl.DataFrame:
    """For each row that some window refused, why, and how many did."""
    refused = wide.filter(pl.col("_late") | pl.col("_shut"))
    if refused.is_empty():
        return _NONE_REFUSED
    reason = (
        pl.when(pl.col("_ahead").any())
        .then(pl.lit("future"))
        .when(pl.col("_late").any())
        .then(pl.lit("late"))
        .otherwise(pl.lit("closed"))
    )
    return refused.group_by("_row").agg(reason.alias("reason"), pl.len().cast(pl.Int64).alias("missed"))
