"""Tiles of the map, and boxes that cover some of them."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.serve.tiles import TILES_PER_SIDE, Box, InvalidRequest, tile_name, tile_of


@pytest.mark.parametrize(
    ("latitude", "longitude", "tile"),
    [
        (60.1708, 24.9375, "12/2331/1185"),
        (0.0, 0.0, "12/2048/2048"),
        (90.0, -180.0, "12/0/0"),
        (-90.0, 180.0, "12/0/4095"),
    ],
)
def test_a_place_belongs_to_a_tile_of_the_web_mercator_map(
    latitude: float, longitude: float, tile: str
) -> None:
    number = pl.select(tile_of(pl.lit(latitude), pl.lit(longitude))).item()
    assert tile_name(number) == tile


@given(
    st.floats(-80, 80),
    st.floats(-180, 179.999),
    st.floats(-200, 200),
    st.floats(0, 380),
    st.floats(-85, 80),
    st.floats(0, 5),
)
def test_a_box_covers_the_tiles_of_all_places_in_it(
    latitude: float, longitude: float, west: float, span: float, south: float, height: float
) -> None:
    box = Box.from_degrees([west, south, west + span, south + height])
    where = pl.DataFrame({"latitude": [latitude], "longitude": [longitude]}).with_columns(
        tile=tile_of(pl.col("latitude"), pl.col("longitude")),
        inside=box.contains(pl.col("latitude"), pl.col("longitude")),
    )
    if where["inside"][0]:
        assert box.covered_tiles(where["tile"])
    assert box.covered_tiles({TILES_PER_SIDE * TILES_PER_SIDE - 1}) == set(), (
        "the last row is beyond -85 degrees"
    )


@pytest.mark.parametrize(
    "text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "1,nan,2,3", "1,95,2,96", "1,60,2,50", "1e9,1,2e9,2"]
)
def test_a_wrong_box_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"box="):
        Box.parse(text)
