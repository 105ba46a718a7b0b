"""A view as it stands: the newest result of each key, and which tiles have changed."""

import threading
from dataclasses import dataclass

import msgspec
import polars as pl

from millrace import panes
from millrace.serve import tiles
from millrace.transit.geocells import centres
from millrace.transit.markers import at_sea
from millrace.views import View

GRACE = 5_000
"""How much longer than until the next window a result is shown, in milliseconds."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A view at one moment."""

    rows: pl.DataFrame
    """`cell`, `tile`, `latitude`, `longitude`, the view's values, `window_start`, `window_end`."""
    time: int | None
    """The end of the newest window of which there was a result."""


class Cells:
    """The newest result of each key. Results may be applied by one thread and looked at by others."""

    def __init__(self, view: View) -> None:
        """Nothing yet."""
        self.view = view
        self.time: int | None = None
        self.taken = 0
        """How many results were applied."""
        types = {column: view.topic.schema[column] for column in (view.key, *view.values)}
        named = {"to": pl.String} if view.kind == "arcs" else {}
        self._kept = pl.DataFrame(schema={**types, **named, **_COLUMNS})
        self._changed: set[int] = set()
        self._lock = threading.Lock()

    def apply(self, results: pl.DataFrame) -> None:
        """Takes results in the order of the log, as the codec gives them with panes.

        Of each key the one of the newest event time counts, and of those the last. A withdrawn one is remembered until it expires, so that
        an older result does not come back in its place.
        """
        view, key = self.view, self.view.key
        event_time = pl.col("event_time")
        last = (
            results.filter(pl.col(key).is_not_null() & pl.col("window_end").is_not_null())
            .filter(event_time == event_time.max().over(key))
            .unique(key, keep="last", maintain_order=True)
            .select(key, *view.values, *_PANE, *_PLACED[view.kind], (pl.col("op") != panes.RETRACT).alias("shown"))
        )
        if last.is_empty():
            return
        if view.kind == "arcs":
            last = last.with_columns(to=centres(last["to"])["cell"])
        time = max(last.select(pl.col("window_end").max()).item(), self.time or 0)
        fresh = pl.col("window_end") >= time - view.every_ms - GRACE
        told = (*view.values, *_TOLD[view.kind])
        old = self._kept.select(key, *(pl.col(c).alias(f"_{c}") for c in (*told, "event_time", "shown", "tile")))
        taken = last.join(old, on=key, how="left", maintain_order="left").filter(
            (event_time >= pl.col("_event_time").fill_null(event_time)) & fresh
        )
        placed = _placed(taken, view).filter(~at_sea())
        differs = pl.any_horizontal(pl.col(column).ne_missing(pl.col(f"_{column}")) for column in told)
        was = pl.col("_shown").fill_null(value=False)
        changed = placed.filter((pl.col("shown") != was) | (pl.col("shown") & differs))["tile"]
        left = placed.filter(was & (pl.col("tile") != pl.col("_tile")))["_tile"]
        kept = self._kept.join(placed.select(key), on=key, how="anti")
        gone = kept.filter(~fresh & pl.col("shown"))["tile"]
        self._put(pl.concat([kept.filter(fresh), placed.select(self._kept.columns)]), {*changed, *left, *gone}, time, len(results))

    def snapshot(self) -> Snapshot:
        """What is shown now."""
        with self._lock:
            return Snapshot(self._kept.filter("shown"), self.time)

    def take_changes(self) -> tuple[Snapshot, set[int]]:
        """What is shown now, and the tiles whose contents are not what they were when this was last asked."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return Snapshot(self._kept.filter("shown"), self.time), changed

    def encode(self, rows: pl.DataFrame, wanted: set[int]) -> dict[int, str]:
        """The contents of each wanted tile as JSON text; a tile without rows is empty."""
        columns = ("cell", *self.view.values, *_TOLD[self.view.kind])
        found = rows.filter(pl.col("tile").is_in(list(wanted))).group_by("tile").agg(*columns)
        texts = {tile: _text(tile, b"[]") for tile in wanted}
        for tile, *contents in found.iter_rows():
            texts[tile] = _text(tile, _encode(list(zip(*contents, strict=True))))
        return texts

    def _put(self, kept: pl.DataFrame, changed: set[int], time: int, taken: int) -> None:
        with self._lock:
            self._kept, self.time = kept, time
            self._changed |= changed
            self.taken += taken


_PANE = ("event_time", "window_start", "window_end")
_COLUMNS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(_PANE, pl.Int64),
    "shown": pl.Boolean,
    "cell": pl.String,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
    "tile": pl.Int64,
}
"""What is kept of a result besides its key and values."""
_PLACED: dict[str, tuple[str, ...]] = {"cells": (), "arcs": (), "points": ("latitude", "longitude")}
"""By kind: columns of a result that say where it is."""
_TOLD: dict[str, tuple[str, ...]] = {"cells": (), "arcs": (), "points": ("longitude", "latitude", "window_end")}
"""By kind: what viewers are told of a result after its values."""


def _placed(results: pl.DataFrame, view: View) -> pl.DataFrame:
    """With the name, place and tile of each key."""
    named = (
        results.with_columns(cell=pl.col(view.key).cast(pl.String)) if _PLACED[view.kind] else results.hstack(centres(results[view.key]))
    )
    there = pl.col("latitude").is_between(-90, 90) & pl.col("longitude").is_between(-180, 180)
    return named.filter(there).with_columns(tiles.tile_of(pl.col("latitude"), pl.col("longitude")))


def _text(tile: int, contents: bytes) -> str:
    return f'{{"tile":"{tiles.name(tile)}","cells":{contents.decode()}}}'
