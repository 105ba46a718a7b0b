"""Where the rows of one key cut its windows, row by row."""

from typing import Any

import polars as pl
import pytest

from millrace import windows
from millrace.engine.operators.ordered_cuts import KeyWindow, cut_windows
from millrace.windows import WindowFn

CASES: dict[str, tuple[WindowFn, list[Any], list[list[int]]]] = {
    "so many rows": (windows.counted(2), [None] * 5, [[0, 1], [2, 3]]),
    "so many rows that overlap": (windows.counted(3, every=2), [None] * 5, [[0, 1], [1, 2, 3]]),
    "a change": (windows.delta("v", 1), [0, 1, 3, 3, 9], [[0, 1], [2, 3]]),
    "a null changes nothing": (windows.delta("v", 1), [0, None, 5], [[0, 1]]),
    "changes that overlap": (windows.delta("v", 2, every=1), [0, 1, 2, 4], [[0, 1, 2], [2, 3]]),
    "a mark": (windows.punctuated(pl.col("last")), [False, True, None, True], [[0, 1], [2, 3]]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 2, 99])
def test_windows_are_cut_at_the_same_rows_however_they_come(case: str, batch: int) -> None:
    window, values, expected = CASES[case]
    key_window, found = KeyWindow([], 0, None), list[list[int]]()
    for start in range(0, len(values), batch):
        new = range(start, min(start + batch, len(values)))
        found += [list(rows) for rows in cut_windows(window, key_window, values, new)]
    assert found == expected
