"""Windows that rows cut: rows are counted in order of event time, whatever order they come in."""

from dataclasses import dataclass

import pytest

import millrace as mr
from millrace import testing, windows


@dataclass
class Reading:
    key: str
    n: int


@dataclass
class Values:
    key: str
    n: list[int]


READINGS, VALUES = mr.Topic("input.readings", Reading), mr.Topic("analytics.values", Values)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_windows_are_cut_in_order_of_event_time(on: testing.On) -> None:
    values = mr.read(READINGS).window(windows.counted(3, every=2)).group_by("key").collect("n")
    script = testing.Script(mr.Job("values", values.write(VALUES)), on=on)
    script.events(*({"key": "a", "n": n, "event_time": n * 1000} for n in (2, 1, 4)))
    script.restart()
    script.watermark("3s")
    assert [pane["n"] for pane in script.panes()] == [[1, 2]]
    script.events({"key": "a", "n": 3, "event_time": 3_000}, {"key": "a", "n": 2, "event_time": 2_000})
    script.watermark("9s")
    assert [(row["n"], row["reason"]) for row in script.late()] == [(2, "late")]
    script.end()
    shown = [(pane["n"], pane["index"], pane["window_start"], pane["window_end"]) for pane in script.panes()]
    assert shown[-1] == ([2, 3, 4], 1, 2_000, 4_001)
