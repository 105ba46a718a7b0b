"""Geocells are those of the H3 library, null where there is no place,
and the expression travels to workers.
"""

import pickle

import h3
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import DefinitionError
from millrace.geo import geocell
from millrace.runners.spark.serialized_plan import pickle_by_value

PLACES = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@settings(deadline=None)
@given(st.lists(PLACES, max_size=20), st.integers(0, 15))
def test_every_place_is_in_the_cell_that_the_h3_library_says(
    places: list[tuple[float, float]], resolution: int
) -> None:
    frame = pl.DataFrame(places, schema={"latitude": pl.Float64, "longitude": pl.Float64}, orient="row")
    cells = frame.select(geocell(resolution=resolution))["geocell"]
    assert cells.dtype == pl.Int64
    assert cells.to_list() == [h3.str_to_int(h3.latlng_to_cell(*place, resolution)) for place in places]


@pytest.mark.parametrize(
    "place",
    [
        (None, 24.9),
        (60.2, None),
        (90.001, 0.0),
        (0.0, -180.001),
        (float("nan"), 0.0),
        (0.0, float("inf")),
        (1e300, 1e300),
    ],
)
def test_what_is_no_place_on_earth_has_no_cell_and_harms_no_other(
    place: tuple[float | None, float | None],
) -> None:
    frame = pl.DataFrame(
        [(60.2, 24.9), place, (60.2, 24.9)],
        schema={"latitude": pl.Float64, "longitude": pl.Float64},
        orient="row",
    )
    first, odd, last = frame.select(geocell())["geocell"].to_list()
    assert odd is None
    assert first == last == h3.str_to_int(h3.latlng_to_cell(60.2, 24.9, 9))


def test_no_rows_make_no_cells_of_the_same_type() -> None:
    frame = pl.DataFrame(schema={"latitude": pl.Float64, "longitude": pl.Float64})
    assert frame.select(geocell()).schema == {"geocell": pl.Int64}


def test_columns_may_have_other_names_and_whole_numbers() -> None:
    frame = pl.DataFrame({"y": [60], "x": [25]})
    assert frame.select(cell=geocell("y", "x", resolution=5)).item() == h3.str_to_int(
        h3.latlng_to_cell(60, 25, 5)
    )


def test_the_expression_survives_the_way_to_a_worker() -> None:
    sent = pickle.loads(pickle_by_value(geocell(resolution=7)))
    frame = pl.DataFrame({"latitude": [60.2], "longitude": [24.9]})
    assert frame.select(sent).item() == h3.str_to_int(h3.latlng_to_cell(60.2, 24.9, 7))


@pytest.mark.parametrize("resolution", [-1, 16, 8.5, "9", None])
def test_an_impossible_resolution_is_refused(resolution: object) -> None:
    with pytest.raises(DefinitionError, match="is not an H3 resolution"):
        geocell(resolution=resolution)  # type: ignore[arg-type]  # what a settings file may say
