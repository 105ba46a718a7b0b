"""Distances on Earth, and the H3 resolution whose cells are large enough to find what
is near (cells: `millrace.geo`).
"""

from __future__ import annotations

import math
from typing import Any, overload

import polars as pl

from millrace.errors import DefinitionError

EARTH_RADIUS_KM = 6371.0088

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
"""By resolution: the average length of a cell's edge, in kilometres.
The shortest edges are a third shorter.
"""


@overload
def kilometres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float: ...
@overload
def kilometres(
    latitude: pl.Expr, longitude: pl.Expr, other_latitude: pl.Expr, other_longitude: pl.Expr
) -> pl.Expr: ...
def kilometres(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any) -> Any:
    """The distance of two positions in degrees along the ground (haversine); of numbers or of columns."""
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
    """The finest resolution at which two positions less than `km` apart are in the
    same cell or in neighbouring ones.
    """
    fits = [resolution for resolution, edge in enumerate(_EDGE_LENGTHS_KM) if edge / 1.6 >= km]
    if not fits:
        raise DefinitionError(
            f"{km} km is farther than the edge of any H3 cell; use less than {_EDGE_LENGTHS_KM[0] / 1.6:.0f}"
        )
    return fits[-1]
