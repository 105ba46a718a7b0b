"""`lead`: rows wait for the rows after them, and what follows waits for those."""

import pytest

from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import frames, testing, windows
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine

ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_a_row_goes_on_when_the_one_after_it_is_there_or_can_no_longer_come_in_time(on: On) -> None:
    shown = Shown(read().over(after=frames.lead("value", within=10)), "after", on=on)
    assert shown.after(reading(10, 1.0), watermark=12) == []
    assert shown.after(reading(12, 2.0), watermark=13) == [(10, 2.0)]
    shown.script.restart()
    assert shown.after(watermark=21) == []
    assert shown.after(watermark=22) == [(12, None)], "a row at 22 would be too late for it"
    assert shown.after(reading(30, 3.0), reading(40, 4.0)) == [(30, None), (40, None)]


@ON
def test_a_row_waits_for_each_of_the_rows_that_it_asks_for(on: On) -> None:
    stream = read().over(next=frames.lead("value", within=5), third=frames.lead("value", 3, within=50))
    shown = Shown(stream, "next", "third", on=on)
    assert shown.after(reading(1, 1.0), reading(2, 2.0), reading(9, 3.0), watermark=10) == []
    assert shown.after(reading(10, 4.0), watermark=11) == [(1, 2.0, 4.0)]
    assert shown.after(watermark=52) == [(2, None, None)]
    assert shown.after() == [(9, 4.0, None), (10, None, None)]


@ON
def test_what_follows_takes_none_of_the_rows_for_late(on: On) -> None:
    stream = read().over(after=frames.lead("value", within=100))
    counted = stream.window(windows.fixed(10)).group_by("meter").count()
    script = testing.Script(job(counted), on=on)
    script.events(reading(5, 1.0), reading(6, 2.0))
    script.watermark(50)
    script.restart()
    script.watermark(106)
    assert not script.panes(), "the row at 6 is known by now, but what follows cannot know that"
    script.watermark(110)
    assert [(row["window_start"], row["count"]) for row in script.panes()] == [(0, 2)]


def test_keys_whose_rows_have_all_gone_on_leave_the_state() -> None:
    engine = OnEngine([job(read().over(after=frames.lead("value", within=20)))], {READINGS.name: 1})
    shown = most = 0
    for n in range(100):
        row = SourceEvent(READINGS.name, 0, n, n * 10, n * 10, {"meter": f"{n % 7}", "value": 1.0})
        shown += len(engine.feed([row], n * 10).written.get("analytics.framed", []))
        most = max(most, stored_rows(engine))
    assert shown > 95
    assert most < 30
