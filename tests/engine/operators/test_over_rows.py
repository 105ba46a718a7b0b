"""`lag` and frames of so many rows, and what is kept of each key for them."""

from typing import Any

import pytest

from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import aggregates, frames
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine

ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_a_row_is_beside_the_one_before_it_in_event_time_however_they_come(on: On) -> None:
    shown = Shown(read().over(before=frames.lag("value"), two=frames.lag("value", 2)), "before", "two", on=on)
    assert shown.after(reading(30, 3.0), reading(10, 1.0), watermark=20) == [(10, None, None)]
    shown.script.restart()
    assert shown.after(reading(25, None), reading(20, 2.0), watermark=31) == [
        (20, 1.0, None),
        (25, 2.0, 1.0),
        (30, None, 2.0),
    ], "a null is a value"


@ON
def test_keys_do_not_meet_and_null_is_a_key(on: On) -> None:
    shown = Shown(read().over(before=frames.lag("value")), "meter", "before", on=on)
    rows = [
        reading(1, 1.0),
        reading(2, 2.0, "b"),
        reading(3, 3.0, None),
        reading(4, 4.0),
        reading(5, 5.0, None),
    ]
    assert shown.after(*rows, watermark=4) == [(1, "a", None), (2, "b", None), (3, None, None)]
    assert shown.after() == [(4, "a", 1.0), (5, None, 3.0)]


@ON
def test_rows_of_the_same_time_come_in_the_order_of_their_offsets(on: On) -> None:
    shown = Shown(
        read().over(before=frames.lag("value"), rows=2, sum=aggregates.sum("value")), "before", "sum", on=on
    )
    assert shown.after(reading(5, 1.0), reading(5, 2.0), reading(5, 4.0)) == [
        (5, None, 1.0),
        (5, 1.0, 3.0),
        (5, 2.0, 6.0),
    ]


@ON
def test_a_frame_may_end_before_its_row_and_be_empty(on: On) -> None:
    stream = read().over(
        n=aggregates.count(), sum=aggregates.sum("value"), all=aggregates.collect("value"), rows=(-3, -2)
    )
    shown = Shown(stream, "n", "sum", "all", on=on)
    assert shown.after(reading(1, 1.0), reading(2, 2.0), reading(3, 4.0), watermark=3) == [
        (1, 0, None, []),
        (2, 0, None, []),
    ]
    shown.script.restart()
    assert shown.after(reading(4, 8.0)) == [(3, 1, 1.0, [1.0]), (4, 2, 3.0, [1.0, 2.0])]


@ON
def test_a_key_begins_anew_after_so_long_without_a_row(on: On) -> None:
    stream = read().over(before=frames.lag("value"), n=aggregates.count(), rows=9, ttl=10)
    shown = Shown(stream, "before", "n", on=on)
    assert shown.after(reading(1, 1.0), reading(10, 2.0), watermark=11) == [(1, None, 1), (10, 1.0, 2)]
    assert shown.after(reading(20, 3.0), reading(29, 4.0)) == [(20, None, 1), (29, 3.0, 2)]


def feed(columns: dict[str, Any], meters: int, ttl: int | None = None) -> int:
    """How many rows are stored at most while 600 rows come, a meter after the other."""
    engine = OnEngine([job(read().over(**columns, ttl=ttl))], {READINGS.name: 1})
    most = 0
    for n in range(60):
        rows = [
            SourceEvent(
                READINGS.name, 0, at, at, at, {"meter": f"m{at % meters + n // 20 * meters}", "value": 1.0}
            )
            for at in range(n * 10, n * 10 + 10)
        ]
        engine.feed(rows, n * 10 + 9)
        most = max(most, stored_rows(engine))
    return most


def test_of_each_key_only_as_many_rows_are_kept_as_are_looked_back_at() -> None:
    assert feed({"before": frames.lag("value")}, 5) < 100
    assert feed({"before": frames.lag("value", 10)}, 5) < 800, "older versions stay until chunks are merged"


def test_keys_that_are_quiet_leave_the_state_after_the_time_to_live() -> None:
    assert feed({"before": frames.lag("value")}, 100, ttl=5) < feed({"before": frames.lag("value")}, 100) / 2
