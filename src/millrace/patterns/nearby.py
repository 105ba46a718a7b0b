"""Distances on Earth, exactly, and H3 cells large enough that whatever is near is in the same cell or beside it."""

from __future__ import annotations

import math
from typing import Any, overload

import polars as pl

from millrace.errors import ComponentMissing, DefinitionError

EARTH_RADIUS_KM = 6371.0088
"""Of the Earth, in kilometres."""

_EDGE_LENGTHS_KM = (
    1281.3,
    483.1,
    182.5,
    68.98,
    26.07,
    9.854,
    3.725,
    1.406,
    0.5314,
    0.2008,
    0.0759,
    0.0287,
    0.01083,
)
"""How long the edges of cells are, in kilometres, on average, by resolution. The shortest are a third shorter."""


@overload
def kilometres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float: ...
@overload
def kilometres(
    latitude: pl.Expr, longitude: pl.Expr, other_latitude: pl.Expr, other_longitude: pl.Expr
) -> pl.Expr: ...
def kilometres(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any) -> Any:
    """How far two places are apart along the ground, of numbers or of columns, in degrees (haversine)."""
    columns = isinstance(latitude, pl.Expr)

    def sine(angle: Any) -> Any:
        return angle.sin() if columns else math.sin(angle)

    def cosine(angle: Any) -> Any:
        return angle.cos() if columns else math.cos(angle)

    degree = math.pi / 180
    north, east = (other_latitude - latitude) * degree, (other_longitude - longitude) * degree
    part = sine(north / 2) * sine(north / 2) + cosine(latitude * degree) * cosine(
        other_latitude * degree
    ) * sine(east / 2) * sine(east / 2)
    angle = part.sqrt().arcsin() if columns else math.asin(min(1.0, math.sqrt(part)))
    return angle * (2 * EARTH_RADIUS_KM)


def resolution_for(km: float) -> int:
    """The finest resolution at which places less than `km` apart are in the same cell or in cells that touch."""
    fits = [resolution for resolution, edge in enumerate(_EDGE_LENGTHS_KM) if edge / 1.6 >= km]
    if not fits:
        raise DefinitionError(
            f"{km} km is farther than the edge of any H3 cell; use less than {_EDGE_LENGTHS_KM[0] / 1.6:.0f}"
        )
    return fits[-1]


def home_cell(latitude: str, longitude: str, resolution: int) -> pl.Expr:
    """The cell of a position; null where that is no place on Earth."""
    return pl.struct(latitude, longitude).map_batches(
        _Home(resolution), return_dtype=pl.Int64, is_elementwise=True
    )


def around(cell: str) -> pl.Expr:
    """A cell and those beside it."""
    return pl.col(cell).map_batches(_neighbour_cells, return_dtype=pl.List(pl.Int64), is_elementwise=True)


class _Home:
    """A class rather than a closure: it is pickled by name."""

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution

    def __call__(self, places: pl.Series) -> pl.Series:
        cells = _import_h3ronpy().vector.coordinates_to_cells
        latitude, longitude = places.struct.unnest()
        fits = (latitude.abs() <= 90) & (longitude.abs() <= 180)
        found = cells(
            latitude.set(~fits, None).cast(pl.Float64).to_arrow(),
            longitude.set(~fits, None).cast(pl.Float64).to_arrow(),
            self.resolution,
        )
        return pl.Series(places.name, found).cast(pl.Int64)


def _neighbour_cells(cells: pl.Series) -> pl.Series:
    return pl.Series(cells.name, _import_h3ronpy().grid_disk(cells.cast(pl.UInt64).to_arrow(), 1)).cast(
        pl.List(pl.Int64)
    )


def _import_h3ronpy() -> Any:
    try:
        import h3ronpy
        import h3ronpy.vector
    except ImportError as error:
        raise ComponentMissing(
            "nearness needs h3ronpy, which is not installed; install it with: pip install 'millrace[transit]'"
        ) from error
    return h3ronpy
