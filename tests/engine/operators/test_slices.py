"""Window ends as arithmetic on columns: the same as that of `windows.Sliding` for one time."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine.operators.slices import Grid, end_range
from millrace.windows import Sliding

windows = st.builds(
    lambda every, times, rest, offset: Sliding(every * times + rest % every, every, offset % every),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(0, 6),
    st.integers(0, 6),
)


@given(windows, st.integers(-50, 50))
def test_the_ends_of_a_row_s_windows_are_those_of_the_row_form(window: Sliding, at: int) -> None:
    grid, time = Grid(window), pl.col("at")
    slice_start, first, last = (
        pl.DataFrame({"at": [at]})
        .select(
            grid.slice_of(time).alias("slice"),
            grid.first_end(time).alias("first"),
            grid.last_end(time).alias("last"),
        )
        .row(0)
    )
    assert (first, last) == (window.first_end(at), window.last_end(at))
    assert slice_start <= at < slice_start + window.slice_size
    assert window.assign(slice_start) == window.assign(at)


@given(windows, st.integers(-50, 50), st.integers(-30, 30), st.integers(0, 40))
def test_a_slice_expands_to_the_windows_that_end_in_an_interval(
    window: Sliding, at: int, low: int, length: int
) -> None:
    grid = Grid(window)
    start = at // window.slice_size * window.slice_size + window.offset % window.slice_size
    slices = pl.DataFrame({"_slice": [start], "_from": [window.first_end(start)]})
    ends = grid.expand(slices, low, low + length).collect()["_end"].to_list()
    assert ends == [end for _, end in window.assign(start) if low < end <= low + length]


def test_no_watermark_leaves_every_end_open_and_the_end_of_the_stream_none() -> None:
    grid = Grid(Sliding(10, 5))
    assert (grid.end_above(None), grid.end_above(END_OF_STREAM)) == (BEFORE_ALL, END_OF_STREAM)
    assert grid.end_above(10) == 15
    assert end_range(pl.DataFrame({"_end": []}, schema={"_end": pl.Int64})) == (END_OF_STREAM, BEFORE_ALL)
