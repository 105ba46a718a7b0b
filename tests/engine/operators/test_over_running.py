"""Frames without a beginning, and row numbers: one running aggregate per key."""

import math
import random
from typing import Any

import pytest

from meter_readings import READINGS, Shown, job, read, reading, stored_rows
from millrace import aggregates, frames
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import On, OnEngine, OnModel

ON = pytest.mark.parametrize("on", ["model", "engine"])


@ON
def test_a_balance_runs_on_from_batch_to_batch(on: On) -> None:
    shown = Shown(read().over(balance=aggregates.sum("value"), n=frames.row_number()), "balance", "n", on=on)
    assert shown.after(reading(1, 5.0), reading(2, -2.0), watermark=3) == [(1, 5.0, 1), (2, 3.0, 2)]
    shown.script.restart()
    assert shown.after(reading(3, None), reading(4, 1.0)) == [(3, 3.0, 3), (4, 4.0, 4)]


@ON
def test_rows_of_the_same_time_have_one_balance_by_range_and_each_its_own_by_rows(on: On) -> None:
    rows = [reading(1, 1.0), reading(2, 2.0), reading(2, 4.0), reading(3, 8.0)]
    choices: list[dict[str, Any]] = [{kind: (None, end)} for kind in ("rows", "range") for end in (0, -1)]
    totals = {
        str(frame): [
            row[1]
            for row in Shown(read().over(total=aggregates.sum("value"), **frame), "total", on=on).after(*rows)
        ]
        for frame in choices
    }
    assert [*totals.values()] == [
        [1.0, 3.0, 7.0, 15.0],
        [None, 1.0, 3.0, 7.0],
        [1.0, 7.0, 7.0, 15.0],
        [None, 1.0, 1.0, 7.0],
    ]


@ON
def test_the_first_and_the_earliest_value_differ_by_nulls(on: On) -> None:
    stream = read().over(
        first=frames.first("value"),
        earliest=aggregates.earliest("value"),
        last=frames.last("value"),
        latest=aggregates.latest("value"),
    )
    shown = Shown(stream, "first", "earliest", "last", "latest", on=on)
    assert shown.after(reading(1, None), reading(2, 1.0), watermark=3) == [
        (1, None, None, None, None),
        (2, None, 1.0, 1.0, 1.0),
    ]
    assert shown.after(reading(3, None), reading(4, 2.0)) == [
        (3, None, 1.0, None, 1.0),
        (4, None, 1.0, 2.0, 2.0),
    ]


EXCEPTIONAL = [1.0, 1e300, -1e300, 5e-300, 0.1, math.inf, -math.inf, math.nan, None, 0.2, 1e20, -1e20]
"""Floats among which some are too small or too large for exact sums, and kept one by one."""


@pytest.mark.parametrize("frame", [{}, {"rows": (None, -1)}, {"range": (None, 0)}], ids=str)
def test_sums_of_floats_of_all_sizes_are_exact(frame: dict[str, Any]) -> None:
    chance = random.Random(7)
    sums = (aggregates.sum, aggregates.mean, aggregates.stddev)
    columns: dict[str, Any] = {made.__name__: made("value") for made in sums}
    made = job(read().over(**columns, max=aggregates.max("value"), min=aggregates.min("value"), **frame))
    engine, model = OnEngine([made], {READINGS.name: 1}, slots=2), OnModel([made], {READINGS.name: 1})
    shown = 0
    for n in range(30):
        rows = [
            SourceEvent(
                READINGS.name,
                0,
                n * 5 + i,
                n * 5 + i // 2,
                n * 5 + i,
                {"meter": chance.choice("abc"), "value": chance.choice(EXCEPTIONAL)},
            )
            for i in range(5)
        ]
        end = n == 29
        ours, theirs = (one.feed(rows, n * 5 + 5, end=end).written for one in (engine, model))
        lines = [sorted(map(repr, written.get("analytics.framed", []))) for written in (ours, theirs)]
        assert lines[0] == lines[1]
        shown += len(lines[0])
    assert shown == 150


def test_of_each_key_one_aggregate_is_kept() -> None:
    engine = OnEngine([job(read().over(total=aggregates.sum("value")))], {READINGS.name: 1})
    for at in range(200):
        engine.feed([SourceEvent(READINGS.name, 0, at, at, at, {"meter": f"{at % 3}", "value": 1.0})], at)
        assert stored_rows(engine) < 40
