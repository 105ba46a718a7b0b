"""Rows to windows on columns: the same windows as `WindowFn.assign` gives for one time."""

import polars as pl
import pytest

from millrace import windows
from millrace.engine.operators.assign import assign_windows, earliest_end, window_input
from millrace.windows import Window, WindowFn

TIMES = [-7, 0, 3, 10, 11, 29]


class Odd(WindowFn):
    """A user's own: of odd times there is none."""

    def assign(self, at: int) -> list[Window]:
        return [] if at % 2 else [(at, at + 4), (at - 2, at + 2)]


@pytest.mark.parametrize(
    "window",
    [
        windows.fixed(10),
        windows.sliding(10, every=4, offset=3),
        windows.sessions(5),
        windows.global_window(),
        Odd(),
    ],
    ids=str,
)
def test_rows_come_to_the_windows_that_contain_their_time(window: WindowFn) -> None:
    rows = assign_windows(pl.DataFrame({"_at": TIMES}), window)
    assigned = sorted(rows.select("_at", "_start", "_end").rows())
    assert assigned == sorted((at, *one) for at in TIMES for one in window.assign(at))


def test_an_offset_of_its_own_moves_the_windows_of_a_row() -> None:
    window = windows.fixed(10, offset=pl.col("shift"))
    rows = pl.DataFrame({"_at": [12, 12], "shift": [0, 3]}).with_columns(window_input(window))
    assert assign_windows(rows, window).select("_start", "_end").rows() == [(10, 20), (3, 13)]


@pytest.mark.parametrize(
    "window", [windows.fixed(10), windows.sliding(10, every=4), windows.sessions(5)], ids=str
)
def test_no_window_of_a_row_ends_before_its_earliest_end(window: WindowFn) -> None:
    end = earliest_end(window, pl.col("_at"))
    assert end is not None
    bounds = pl.DataFrame({"_at": TIMES}).select(end.alias("end"))["end"].to_list()
    assert all(bound <= window.assign(at)[0][1] for at, bound in zip(TIMES, bounds, strict=True))
