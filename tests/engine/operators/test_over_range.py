"""Frames of so much time: peers, bounds, and what is forgotten."""

import pytest

from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import aggregates, frames
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine

ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_both_ends_of_the_range_belong_to_the_frame(on: On) -> None:
    shown = Shown(read().over(all=aggregates.collect("value"), range=10), "all", on=on)
    assert shown.after(reading(9, 1.0), reading(10, 2.0), watermark=20) == [(9, [1.0]), (10, [1.0, 2.0])]
    shown.script.restart()
    assert shown.after(reading(20, 4.0)) == [(20, [2.0, 4.0])], "the row at 10 is 10 ago, the one at 9 is not"


@ON
def test_rows_of_the_same_time_are_in_each_others_frames(on: On) -> None:
    stream = read().over(
        first=frames.first("value"), last=frames.last("value"), n=aggregates.count(), range=5
    )
    shown = Shown(stream, "first", "last", "n", on=on)
    assert shown.after(reading(3, 1.0), reading(7, 2.0), reading(7, None)) == [
        (3, 1.0, 1.0, 1),
        (7, 1.0, None, 3),
        (7, 1.0, None, 3),
    ]


@ON
def test_a_range_may_leave_out_the_row_itself(on: On) -> None:
    stream = read().over(n=aggregates.count(), max=aggregates.max("value"), range=("-10ms", "-1ms"))
    shown = Shown(stream, "n", "max", on=on)
    assert shown.after(reading(1, 1.0), reading(1, 3.0), reading(5, 2.0), reading(30, 4.0)) == [
        (1, 0, None),
        (1, 0, None),
        (5, 2, 3.0),
        (30, 0, None),
    ]


def test_rows_are_forgotten_when_no_frame_reaches_them() -> None:
    engine = OnEngine([job(read().over(n=aggregates.count(), range=50))], {READINGS.name: 1})
    most = 0
    for n in range(100):
        engine.feed([SourceEvent(READINGS.name, 0, n, n * 10, n * 10, {"meter": "a", "value": 1.0})], n * 10)
        most = max(most, stored_rows(engine))
    assert most < 30
