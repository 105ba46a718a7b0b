"""The life of a cell: early, on time, late, and then no more;
and sessions that take back what they showed before they grew.
"""

from dataclasses import dataclass

import pytest

import millrace as mr
from millrace import testing, triggers, windows


@dataclass
class Reading:
    key: str


@dataclass
class Count:
    key: str
    count: int


READINGS, COUNTS = mr.Topic("input.readings", Reading), mr.Topic("analytics.counts", Count)


def script_of(on: testing.On, window: windows.WindowFn, trigger: triggers.Trigger) -> testing.Script:
    counts = mr.read(READINGS).window(window, trigger=trigger, lateness="5s", accumulation="retracting")
    return testing.Script(mr.Job("counts", counts.group_by("key").count().write(COUNTS)), on=on)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_window_is_shown_early_on_time_and_late_until_its_lateness_is_over(on: testing.On) -> None:
    script = script_of(on, windows.fixed("10s"), triggers.at_watermark(early=triggers.after_count(2)))
    for seconds, watermark in (
        ([1, 2], "4s"),
        ([3], "8s"),
        ([], "11s"),
        ([5], "13s"),
        ([], "15s"),
        ([6], "16s"),
    ):
        script.events(*({"key": "a", "event_time": at * 1000} for at in seconds))
        script.watermark(watermark)
        script.restart()
    added = [pane for pane in script.panes() if pane["op"] == "+"]
    shown = [(pane["timing"], pane["index"], pane["count"]) for pane in added]
    assert [pane for pane in shown if pane[0] != "early"][-2:] == [("on_time", 1, 3), ("late", 2, 4)]
    assert shown[0] == ("early", 0, 2)
    assert [row["reason"] for row in script.late()] == ["late"]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_sessions_that_become_one_take_back_what_each_has_shown(on: testing.On) -> None:
    script = script_of(on, windows.sessions("10s"), triggers.at_watermark(early=triggers.after_count(1)))
    for second in (100, 115, 107):
        script.events({"key": "a", "event_time": second * 1000})
        script.watermark("90s")
    standing: list[tuple[int, int, int]] = []
    for pane in script.panes():
        value = pane["window_start"] // 1000, pane["window_end"] // 1000, pane["count"]
        if pane["op"] == "+":
            standing.append(value)
        else:
            standing.remove(value)
    assert standing == [(100, 125, 3)]
