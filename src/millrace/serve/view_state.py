"""A view as it stands: the results that are shown now, and which tiles have changed."""

import threading
from dataclasses import dataclass

import msgspec
import polars as pl

from millrace import panes
from millrace.serve import tiles
from millrace.serve.omissions import Omissions
from millrace.serve.placement import check_results, place_results
from millrace.values.columns import RIGHT_SUFFIX
from millrace.views import View

GRACE_MS = 5_000
"""With `shows="newest"`: milliseconds that a result is shown longer than `every`."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A view at one moment."""

    rows: pl.DataFrame
    """`cell`, `tile`, `latitude`, `longitude`, the view's values, `window_start`, `window_end`; one row for
    each key."""
    time: int | None
    """The end of the shown window; with `shows="newest"`, the end of the newest window with a result."""


class ViewState:
    """The results of a view. One thread adds and publishes results; others read the snapshot published last.

    The last pane of each key and window counts. `publish` decides which of these are shown:

    - `shows="window"`: those of the newest complete window. A window is complete when one of its panes is not
      early, because the engine fires a window for all keys in one batch. Panes of newer windows wait.
    - `shows="newest"`: the newest of each key, until it ended more than `every` and five seconds before the
      newest of all.

    Example with `shows="window"`, windows of 10 s; `a=3` is the pane of key a.

        window end   pane             shown afterwards
        10 s         a=3, on time     a=3
        20 s         a=1, early       a=3            the window of 20 s is not complete
        10 s         a=4, late        a=4            a correction of the shown window
        20 s         b=2, on time     a=1, b=2       complete, so its early panes count as well
        10 s         a=5, late        a=1, b=2       an older window changes nothing
    """

    def __init__(self, view: View) -> None:
        """Starts without results."""
        self.view = view
        self.result_count = 0
        """The number of results added."""
        self.omissions = Omissions(view.name)
        types = {column: view.topic.schema[column] for column in (view.key, *view.values)}
        named: dict[str, type[pl.DataType]] = {"to": pl.String} if view.kind == "arcs" else {}
        self._columns: dict[str, pl.DataType | type[pl.DataType]] = {**types, **named, **_KEPT_COLUMNS}
        self._sent_columns = (*view.values, *_SENT_COLUMNS[view.kind])
        self._changed: set[int] = set()
        self._lock = threading.Lock()
        self.clear()
        self._snapshot = Snapshot(self._rows.drop("live", "order"), None)

    def clear(self) -> None:
        """Drops all results. The published snapshot stays until the next `publish`."""
        self._rows = pl.DataFrame(schema=self._columns)
        self._complete_end: int | None = None
        self._newest_end: int | None = None
        self._next_order = 0

    @property
    def time(self) -> int | None:
        """The time of the published snapshot."""
        return self.snapshot().time

    def apply(self, results: pl.DataFrame) -> None:
        """Adds results and publishes."""
        self.add(results)
        self.publish()

    def add(self, results: pl.DataFrame) -> None:
        """Adds results in the order of the log, as decoded with panes."""
        self.result_count += len(results)
        rows = check_results(self._with_windows(self._drop_excluded(results)), self.view, self.omissions)
        if rows.is_empty():
            return
        settled = rows.filter(pl.col("timing").ne_missing("early"))["window_end"].max()
        self._complete_end = _latest(self._complete_end, settled)
        self._newest_end = _latest(self._newest_end, rows["window_end"].max())
        rows = rows.with_columns(order=self._next_order + pl.int_range(pl.len(), dtype=pl.Int64)).filter(
            self._may_be_shown()
        )
        self._next_order += len(results)
        rows = rows.unique([self.view.key, *_WINDOW], keep="last", maintain_order=True)
        placed = place_results(
            rows.with_columns(live=pl.col("op").ne_missing(panes.RETRACT)), self.view, self.omissions
        )
        candidates = pl.concat([self._rows, placed.select(*self._columns)]).filter(self._may_be_shown())
        self._rows = candidates.unique([self.view.key, *_WINDOW], keep="last", maintain_order=True)

    def publish(self) -> None:
        """Publishes a snapshot of the results to show, and notes the tiles that changed."""
        after, time = self._choose_rows()
        before = self._snapshot.rows
        changed = self._changed_tiles(before, after)
        with self._lock:
            self._snapshot = Snapshot(after, time)
            self._changed |= changed

    def snapshot(self) -> Snapshot:
        """The published snapshot."""
        with self._lock:
            return self._snapshot

    def take_changes(self) -> tuple[Snapshot, set[int]]:
        """The published snapshot, and the tiles that changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return self._snapshot, changed

    def encode(self, rows: pl.DataFrame, wanted: set[int]) -> dict[int, str]:
        """The contents of each wanted tile as JSON text; a tile without rows is empty."""
        by_tile = (
            rows.filter(pl.col("tile").is_in(list(wanted))).group_by("tile").agg("cell", *self._sent_columns)
        )
        texts = {tile: _tile_text(tile, b"[]") for tile in wanted}
        for tile, *contents in by_tile.iter_rows():
            texts[tile] = _tile_text(tile, _encode(list(zip(*contents, strict=True))))
        return texts

    def _drop_excluded(self, results: pl.DataFrame) -> pl.DataFrame:
        """The results without those that the view excludes. Where its expression is null, a result stays."""
        if self.view.exclude is None:
            return results
        return results.filter(~self.view.exclude.fill_null(value=False))

    def _with_windows(self, results: pl.DataFrame) -> pl.DataFrame:
        """Gives rows without windows one of a millisecond, if results are shown by key."""
        if self.view.is_by_window:
            return results
        at = pl.col("event_time")
        return results.with_columns(
            pl.col("window_start").fill_null(at), pl.col("window_end").fill_null(at + 1)
        )

    def _may_be_shown(self) -> pl.Expr:
        """Whether a result may be shown now or later."""
        if not self.view.is_by_window:
            return pl.col("window_end") >= (self._newest_end or 0) - self.view.every_ms - GRACE_MS
        return (
            pl.lit(value=True) if self._complete_end is None else pl.col("window_end") >= self._complete_end
        )

    def _choose_rows(self) -> tuple[pl.DataFrame, int | None]:
        """The results to show, and their time. Before the first complete window, the oldest open one is
        shown.
        """
        live, key = self._rows.filter("live"), self.view.key
        if self.view.is_by_window:
            time = (
                self._complete_end
                if self._complete_end is not None
                else _int_or_none(self._rows["window_end"].min())
            )
            shown = live.filter(pl.col("window_end").eq_missing(pl.lit(time, pl.Int64))).sort("order")
        else:
            time, shown = self._newest_end, live.sort("event_time", "window_end", "order")
        return shown.unique(key, keep="last", maintain_order=True).drop("live", "order"), time

    def _changed_tiles(self, before: pl.DataFrame, after: pl.DataFrame) -> set[int]:
        """The tiles whose contents differ."""
        old = before.select("cell", "tile", *self._sent_columns, there=pl.lit(value=True))
        new = after.select("cell", "tile", *self._sent_columns, there=pl.lit(value=True))
        both = old.join(new, on="cell", how="full")
        compared = ("there", "tile", *self._sent_columns)
        differs = pl.any_horizontal(
            pl.col(column).ne_missing(pl.col(f"{column}{RIGHT_SUFFIX}")) for column in compared
        )
        changed = both.filter(differs)
        return {*changed["tile"].drop_nulls(), *changed[f"tile{RIGHT_SUFFIX}"].drop_nulls()}


_WINDOW = ("window_start", "window_end")
_KEPT_COLUMNS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("event_time", *_WINDOW, "order"), pl.Int64),
    "live": pl.Boolean,
    "cell": pl.String,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
    "tile": pl.Int64,
}
"""The columns of a result besides its key and values."""
_SENT_COLUMNS: dict[str, tuple[str, ...]] = {
    "cells": (),
    "arcs": (),
    "points": ("longitude", "latitude", "window_end"),
}
"""By kind: the columns that follow the values in messages to viewers."""


def _int_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _latest(one: int | None, other: object) -> int | None:
    if not isinstance(other, int):
        return one
    return other if one is None else max(one, other)


def _tile_text(tile: int, contents: bytes) -> str:
    return f'{{"tile":"{tiles.tile_name(tile)}","cells":{contents.decode()}}}'
