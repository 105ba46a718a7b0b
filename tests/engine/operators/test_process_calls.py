"""In which order a processor is called: rows and timers by event time,
a row before the timers of its time.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import millrace as mr
from millrace import testing


@dataclass
class Reading:
    key: str


@dataclass
class Call:
    key: str
    label: str


READINGS, CALLS = mr.Topic("input.readings", Reading), mr.Topic("analytics.calls", Call)


class Reminder(mr.Processor):
    """Sets a timer 10 s after each row."""

    outputs: ClassVar[dict[str, type]] = {"label": str}

    def process(self, row: dict[str, Any], ctx: mr.Context) -> None:
        ctx.emit(label="row")
        ctx.set_timer("later", row["event_time"] + 10_000)

    def on_timer(self, ctx: mr.Context, name: str) -> None:
        ctx.emit(label=name)


@pytest.mark.parametrize("on", ["model", "engine"])
def test_calls_follow_event_time_and_timers_fire_though_no_row_comes(on: testing.On) -> None:
    calls = mr.read(READINGS).group_by("key").process(Reminder())
    script = testing.Script(mr.Job("calls", calls.write(CALLS)), on=on)
    seen = []
    for rows, watermark in (([5], "4s"), ([20], "18s"), ([], "25s"), ([], "31s")):
        script.events(*({"key": "a", "event_time": at * 1000} for at in rows))
        script.watermark(watermark)
        script.restart()
        seen.append([(pane["event_time"] // 1000, pane["label"]) for pane in script.panes()])
    assert seen == [[], [(5, "row"), (15, "later")], [(20, "row")], [(30, "later")]]
