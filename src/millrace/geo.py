"""H3 cells on columns: the cell of a position, the neighbours and the centre of a cell.
The only importer of h3ronpy.
"""

from typing import Any

import polars as pl

from millrace.errors import ComponentMissing, DefinitionError

DEFAULT_RESOLUTION = 9
"""Cells about 350 m across: a few to a street block."""

_MAX_RESOLUTION = 15


def geocell(
    latitude: str = "latitude", longitude: str = "longitude", *, resolution: int = DEFAULT_RESOLUTION
) -> pl.Expr:
    """The H3 cell (Int64) of the position in two columns of degrees;
    null where that is not a position on Earth.
    """
    if resolution not in range(_MAX_RESOLUTION + 1):
        raise DefinitionError(
            f"resolution={resolution!r} is not an H3 resolution; use a whole number from 0 (continents) to "
            f"{_MAX_RESOLUTION} (a square metre)"
        )
    _load_h3ronpy()
    position = pl.struct(pl.col(latitude).cast(pl.Float64), pl.col(longitude).cast(pl.Float64))
    return position.map_batches(_CellEncoder(resolution), return_dtype=pl.Int64, is_elementwise=True).alias(
        "geocell"
    )


class _CellEncoder:
    """A class and not a closure, so that it is pickled by name and workers need only the resolution."""

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution

    def __call__(self, positions: pl.Series) -> pl.Series:
        latitude, longitude = (
            _drop_out_of_range(degrees, limit)
            for degrees, limit in zip(positions.struct.unnest(), (90, 180), strict=True)
        )
        cells = _load_h3ronpy().vector.coordinates_to_cells(
            latitude.to_arrow(), longitude.to_arrow(), self.resolution
        )
        return pl.Series(positions.name, cells).cast(pl.Int64)


def _drop_out_of_range(degrees: pl.Series, limit: int) -> pl.Series:
    """Null beyond the limit and for NaN, where H3 would raise or wrap around."""
    is_within = degrees.abs() <= limit
    return degrees if is_within.all(ignore_nulls=False) else degrees.set(~is_within, None)


def _load_h3ronpy() -> Any:
    try:
        import h3ronpy
        import h3ronpy.vector
    except ImportError as error:
        raise ComponentMissing(
            "geocells need h3ronpy, which is not installed; install it with: "
            "pip install 'millrace-streams[transit]'"
        ) from error
    return h3ronpy


def with_neighbours(cell: str) -> pl.Expr:
    """A list of the cell in this column and the cells that share a border with it."""
    return pl.col(cell).map_batches(_find_disks, return_dtype=pl.List(pl.Int64), is_elementwise=True)


def _find_disks(cells: pl.Series) -> pl.Series:
    disks = _load_h3ronpy().grid_disk(cells.cast(pl.UInt64).to_arrow(), 1)
    return pl.Series(cells.name, disks).cast(pl.List(pl.Int64))


def are_neighbours(one: str, other: str) -> pl.Expr:
    """Whether the cells in two columns share a border."""
    _load_h3ronpy()
    return pl.struct(pl.col(one).alias("one"), pl.col(other).alias("other")).map_batches(
        _find_adjacent, return_dtype=pl.Boolean, is_elementwise=True
    )


def _find_adjacent(pairs: pl.Series) -> pl.Series:
    """Joins with the neighbours of each distinct cell, which are far fewer than the pairs."""
    frame = pairs.struct.unnest().with_row_index("row")
    cells = frame["one"].drop_nulls().unique()
    disks = pl.DataFrame({"one": cells, "other": _find_disks(cells)}).explode("other")
    adjacent = disks.filter(pl.col("one") != pl.col("other"))
    judged = frame.join(
        adjacent.with_columns(near=pl.lit(value=True)), on=["one", "other"], how="left", maintain_order="left"
    )
    return judged["near"].fill_null(value=False).alias(pairs.name)


def cell_centres(cells: pl.Series) -> pl.DataFrame:
    """The name of each cell in hexadecimal (`cell`) and its centre (`latitude`, `longitude`);
    null where the value is not a cell.
    """
    h3 = _load_h3ronpy()
    valid = h3.cells_valid(cells.cast(pl.UInt64, strict=False).to_arrow())
    centre_points = pl.DataFrame(h3.vector.cells_to_coordinates(valid))
    return pl.DataFrame(
        {
            "cell": pl.Series(h3.cells_to_string(valid)),
            "latitude": centre_points["lat"],
            "longitude": centre_points["lng"],
        }
    )
