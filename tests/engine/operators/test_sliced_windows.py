"""Windows from slices: which windows take a row is decided by the watermark at the row, window by window."""

from dataclasses import dataclass

import pytest

import millrace as mr
from millrace import testing, windows


@dataclass
class Reading:
    key: str


@dataclass
class Count:
    key: str
    count: int


READINGS, COUNTS = mr.Topic("input.readings", Reading), mr.Topic("analytics.counts", Count)


def play(on: testing.On, watermark: str) -> tuple[list[tuple[int, int]], list[tuple[str, int]]]:
    """A row at 12 s after a watermark: the windows that show it, and why others refuse it."""
    counts = mr.read(READINGS).window(windows.sliding("10s", every="5s")).group_by("key").count()
    script = testing.Script(mr.Job("counts", counts.write(COUNTS)), on=on)
    script.watermark(watermark)
    script.events({"key": "a", "event_time": 12_000})
    script.end()
    shown = [(pane["window_start"] // 1000, pane["window_end"] // 1000) for pane in script.panes()]
    return sorted(shown), [(row["reason"], row["missed"]) for row in script.late()]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_that_is_late_for_its_first_window_counts_in_the_others(on: testing.On) -> None:
    assert play(on, "11s") == ([(5, 15), (10, 20)], [])
    assert play(on, "16s") == ([(10, 20)], [("late", 1)])
    assert play(on, "21s") == ([], [("late", 2)])
