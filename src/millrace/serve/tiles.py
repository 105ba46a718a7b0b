"""Web-mercator tiles of one zoom level, and boxes in degrees, which cover some of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

ZOOM = 12
"""At this zoom, tiles are about 10 km wide at the equator and 5 km in Helsinki: a city has some dozens of
them."""
TILES_PER_SIDE = 2**ZOOM


class InvalidRequest(ValueError):
    """A wrong request of a viewer; the text is sent back to it."""


def tile_of(latitude: pl.Expr, longitude: pl.Expr) -> pl.Expr:
    """The number of a position's tile: `column * TILES_PER_SIDE + row`. Positions beyond the map belong to
    its edge.
    """
    column: pl.Expr = ((longitude + 180) / 360 * TILES_PER_SIDE).floor().cast(pl.Int64) % TILES_PER_SIDE
    number: pl.Expr = column * TILES_PER_SIDE + _row(latitude)
    return number.alias("tile")


def _row(latitude: pl.Expr) -> pl.Expr:
    radians = latitude.clip(-89, 89).radians()
    row: pl.Expr = (
        ((1 - radians.tan().arcsinh() / math.pi) / 2 * TILES_PER_SIDE)
        .floor()
        .clip(0, TILES_PER_SIDE - 1)
        .cast(pl.Int64)
    )
    return row


def tile_name(tile: int) -> str:
    """The address of a tile: zoom/column/row."""
    return f"{ZOOM}/{tile // TILES_PER_SIDE}/{tile % TILES_PER_SIDE}"


@dataclass(frozen=True)
class Box:
    """A box in degrees, from west to `west + span` and from south to north. It may cross the antimeridian."""

    west: float
    south: float
    span: float
    north: float

    @classmethod
    def from_degrees(cls, degrees: Sequence[float]) -> "Box":
        """The box of `[west, south, east, north]`; one whose west is greater than its east crosses the
        antimeridian.
        """
        text = ",".join(f"{number:g}" for number in degrees)
        if len(degrees) != 4 or not all(map(math.isfinite, degrees)):
            raise InvalidRequest(
                f"box={text} is not a box; give four numbers of degrees: west,south,east,north, such as "
                "24.5,60.1,25.3,60.4"
            )
        west, south, east, north = degrees
        if not -90 <= south <= north <= 90:
            raise InvalidRequest(
                f"box={text}: south={south:g} and north={north:g} must be between -90 and 90, the lesser "
                "first"
            )
        if not all(-1e6 <= degree <= 1e6 for degree in (west, east)):
            raise InvalidRequest(
                f"box={text}: west={west:g} and east={east:g} are not degrees; use numbers between -180 and "
                "180"
            )
        span = east - west if east >= west else (east - west) % 360
        return (
            cls(-180.0, south, 360.0, north)
            if span >= 360
            else cls((west + 180) % 360 - 180, south, span, north)
        )

    @classmethod
    def parse(cls, text: str) -> "Box":
        """The box of `west,south,east,north`."""
        try:
            degrees = [float(part) for part in text.split(",")]
        except ValueError:
            raise InvalidRequest(
                f"box={text} is not a box; give four numbers of degrees: west,south,east,north, such as "
                "24.5,60.1,25.3,60.4"
            ) from None
        return cls.from_degrees(degrees)

    def contains(self, latitude: pl.Expr, longitude: pl.Expr) -> pl.Expr:
        """Whether a position is inside or on the edge."""
        return latitude.is_between(self.south, self.north) & ((longitude - self.west) % 360 <= self.span)

    def covered_tiles(self, tiles: Iterable[int]) -> set[int]:
        """The tiles that the box touches."""
        first, width, top, bottom = self._edges
        return {
            tile
            for tile in tiles
            if top <= tile % TILES_PER_SIDE <= bottom
            and (tile // TILES_PER_SIDE - first) % TILES_PER_SIDE <= width
        }

    @cached_property
    def _edges(self) -> tuple[int, int, int, int]:
        """The first column, the number of further columns, the first row and the last."""
        first = math.floor((self.west + 180) / 360 * TILES_PER_SIDE)
        width = math.floor((self.west + self.span + 180) / 360 * TILES_PER_SIDE) - first
        top, bottom = (int(pl.select(_row(pl.lit(edge))).item()) for edge in (self.north, self.south))
        return first, width, top, bottom
