"""Positions → H3 cells, on columns."""

from typing import Any

import polars as pl

from millrace.errors import ComponentMissing, DefinitionError

RESOLUTION = 9
"""Cells about 350 m across: a few to a street block."""

_FINEST = 15


def geocell(latitude: str = "latitude", longitude: str = "longitude", *, resolution: int = RESOLUTION) -> pl.Expr:
    """The H3 cell (Int64) of the position in two columns of degrees; null where that is no place on Earth."""
    if resolution not in range(_FINEST + 1):
        raise DefinitionError(
            f"resolution={resolution!r} is no H3 resolution; use a whole number from 0 (continents) to {_FINEST} (a square metre)"
        )
    _coordinates_to_cells()
    place = pl.struct(pl.col(latitude).cast(pl.Float64), pl.col(longitude).cast(pl.Float64))
    return place.map_batches(_Cells(resolution), return_dtype=pl.Int64, is_elementwise=True).alias("geocell")


class _Cells:
    """A class rather than a closure: it is pickled by name, so workers need no more than the resolution."""

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution

    def __call__(self, places: pl.Series) -> pl.Series:
        latitude, longitude = (_within(degrees, limit) for degrees, limit in zip(places.struct.unnest(), (90, 180), strict=True))
        cells = _coordinates_to_cells()(latitude.to_arrow(), longitude.to_arrow(), self.resolution)
        return pl.Series(places.name, cells).cast(pl.Int64)


def _within(degrees: pl.Series, limit: int) -> pl.Series:
    """Null beyond the limit, and where it is no number: there H3 would raise, or wrap around."""
    fits = degrees.abs() <= limit
    return degrees if fits.all(ignore_nulls=False) else degrees.set(~fits, None)


def _coordinates_to_cells() -> Any:
    try:
        from h3ronpy.vector import coordinates_to_cells
    except ImportError as error:
        raise ComponentMissing("geocells need h3ronpy, which is not installed; install it with: pip install 'millrace[transit]'") from error
    return coordinates_to_cells


def centres(cells: pl.Series) -> pl.DataFrame:
    """For each cell its name as H3 writes it (`cell`, hexadecimal) and its centre (`latitude`, `longitude`); null where it is no cell."""
    _coordinates_to_cells()
    from h3ronpy import cells_to_string, cells_valid
    from h3ronpy.vector import cells_to_coordinates

    valid = cells_valid(cells.cast(pl.UInt64, strict=False).to_arrow())
    places = pl.DataFrame(cells_to_coordinates(valid))
    return pl.DataFrame({"cell": pl.Series(cells_to_string(valid)), "latitude": places["lat"], "longitude": places["lng"]})
