"""Positions of results on the map. Results that look wrong or have no position are counted."""

from collections.abc import Iterable

import polars as pl

from millrace.geo import cell_centres
from millrace.serve import tiles
from millrace.serve.omissions import Omissions
from millrace.views import View

_FILTER = "filter such rows out before the job groups them"


def check_results(results: pl.DataFrame, view: View, omissions: Omissions) -> pl.DataFrame:
    """The results that have a window, without which a view cannot show a time. Results that look wrong are
    counted.
    """
    windowed = pl.col("window_end").is_not_null() & pl.col("window_start").is_not_null()
    rows = results.filter(windowed)
    if missing := len(results) - len(rows):
        remedy = "group the job's rows by a window, or declare the view with shows='newest'"
        omissions.add("no_window", missing, "a result has no window, so it is not shown", remedy)
    added = rows.filter(pl.col("op").ne_missing("-"))
    if view.is_by_window:
        _check_windows(added, view, omissions)
    _check_keys(added, view, omissions)
    return rows


def _check_windows(added: pl.DataFrame, view: View, omissions: Omissions) -> None:
    size = pl.col("window_end") - pl.col("window_start")
    other_sizes = added.filter(size != view.window_ms)
    if len(other_sizes):
        length = other_sizes.select(size).item(-1, 0)
        example = (
            f"a window of {length:,} ms, where the view's windows are {view.window_ms:,} ms long; "
            "only results whose windows end together are shown"
        )
        remedy = (
            "declare the size of the job's windows in window=, or shows='newest' for sessions and matches"
        )
        omissions.add("other_window", len(other_sizes), example, remedy)


def _check_keys(added: pl.DataFrame, view: View, omissions: Omissions) -> None:
    """Counts keys with several results of one window and index: the job groups by more columns than the
    view's key.
    """
    identity = [view.key, "window_start", "window_end", "index"]
    distinct = added.select(*identity, *(column for column in view.values if column not in identity)).unique()
    repeated = distinct.filter(
        distinct.select(pl.struct(identity).is_duplicated()).to_series(), pl.col(view.key).is_not_null()
    )
    if view.is_by_window and len(repeated):
        key = f"{view.key}={repeated[view.key][-1]!r}"
        example = f"{key} has several results of one window, and only the last one is shown"
        omissions.add(
            "several_of_one_key", len(repeated), example, f"group the job's results by {view.key!r} alone"
        )


def place_results(rows: pl.DataFrame, view: View, omissions: Omissions) -> pl.DataFrame:
    """Adds the name, position and tile of each key. Results without a position are dropped and counted."""
    keyed = rows.filter(pl.col(view.key).is_not_null())
    _omit(
        rows.filter(pl.col(view.key).is_null()),
        "no_key",
        omissions,
        f"{view.key} is null, so it is not shown",
        _FILTER,
    )
    named = _name_points(keyed, view) if view.kind == "points" else _name_cells(keyed, view)
    is_on_earth = pl.col("latitude").is_between(-90, 90) & pl.col("longitude").is_between(-180, 180)
    placed = named.filter(is_on_earth)
    unplaced = named.filter(~is_on_earth.fill_null(value=False))
    if view.kind == "points":
        coordinates = _describe_values(unplaced, ("latitude", "longitude"))
        _omit(
            unplaced,
            "no_place",
            omissions,
            f"{coordinates} is not a place on Earth, so it is not shown",
            _FILTER,
        )
    else:
        _omit(
            unplaced,
            "not_a_cell",
            omissions,
            f"{_describe_values(unplaced, (view.key,))} is not an H3 cell, so it is not shown",
            _cell_remedy(view),
        )
        _check_resolutions(placed, view, omissions)
    if view.kind == "arcs":
        placed = _name_targets(placed, omissions)
    return placed.with_columns(tiles.tile_of(pl.col("latitude"), pl.col("longitude")))


def _check_resolutions(rows: pl.DataFrame, view: View, omissions: Omissions) -> None:
    """Counts results of mixed resolutions, whose cells overlap, so that vehicles may be counted twice."""
    resolution = pl.col(view.key) // 2**52 % 16
    resolutions = rows.filter("live").select("window_end", resolution=resolution)
    mixed = resolutions.filter(pl.col("resolution").n_unique().over("window_end") > 1)
    if len(mixed):
        several = " and ".join(map(str, sorted(set(mixed["resolution"]))))
        example = f"cells of resolutions {several} in one window, so that hexagons overlap"
        omissions.add(
            "resolutions", len(mixed), example, "use one resolution of geocell() for all of the job's results"
        )


def _name_points(rows: pl.DataFrame, view: View) -> pl.DataFrame:
    coordinates = (pl.col("latitude").cast(pl.Float64), pl.col("longitude").cast(pl.Float64))
    return rows.with_columns(*coordinates, cell=pl.col(view.key).cast(pl.String))


def _name_cells(rows: pl.DataFrame, view: View) -> pl.DataFrame:
    return (
        rows.drop("cell", "latitude", "longitude", strict=False).hstack(cell_centres(rows[view.key]))
        if len(rows)
        else _with_null_names(rows)
    )


def _with_null_names(rows: pl.DataFrame) -> pl.DataFrame:
    empty = {"cell": pl.String, "latitude": pl.Float64, "longitude": pl.Float64}
    return rows.with_columns(pl.lit(None, dtype).alias(column) for column, dtype in empty.items())


def _name_targets(rows: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Adds the names of the cells that arcs lead to."""
    named = rows.with_columns(
        named_target=pl.col("to"),
        to=cell_centres(rows["to"])["cell"] if len(rows) else pl.lit(None, pl.String),
    )
    unplaced = named.filter(pl.col("to").is_null()).with_columns(to=pl.col("named_target"))
    example = (
        f"{_describe_values(unplaced, ('to',))} is not an H3 cell, so the arc leads nowhere and is not shown"
    )
    _omit(unplaced, "no_end", omissions, example, "make the column with geocell(), or filter such rows out")
    return named.filter(pl.col("to").is_not_null()).drop("named_target")


def _omit(unplaced: pl.DataFrame, cause: str, omissions: Omissions, example: str, remedy: str) -> None:
    """Counts results that are not shown. Retractions are not counted: their result was never shown."""
    omissions.add(cause, len(unplaced.filter("live")), example, remedy)


def _describe_values(rows: pl.DataFrame, columns: Iterable[str]) -> str:
    return ", ".join(f"{column}={rows[column][-1]!r}" for column in columns) if len(rows) else ""


def _cell_remedy(view: View) -> str:
    return f"make {view.key!r} with millrace.geo.geocell(), or declare kind='points'"
