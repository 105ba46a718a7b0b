"""Rows wait until the watermark has passed them, by the worked example of `engine/ordered_rows.py`."""

from dataclasses import dataclass

import polars as pl
import pytest

import millrace as mr
from millrace import patterns, testing
from millrace.testing.model.source import SourceEvent


@dataclass
class Reading:
    key: str


@dataclass
class Found:
    key: str
    n: int


READINGS, FOUND = mr.Topic("input.readings", Reading), mr.Topic("analytics.found", Found)
EACH = mr.pattern("one", pl.lit(value=True)).within("1s")


@pytest.mark.parametrize("on", ["model", "engine"])
def test_rows_are_released_in_order_when_the_watermark_has_passed_them(on: testing.On) -> None:
    rows = mr.read(READINGS, watermark=mr.watermarks.bounded("2s")).group_by("key")
    found = rows.match(EACH, select={"n": patterns.count("one")})
    backend = testing.backend([mr.Job("found", found.write(FOUND))], {READINGS.name: 1}, on)
    released, late, offset = [], [], 0
    for times in ((10, 13), (12, 16), (11, 17)):
        events = [
            SourceEvent(READINGS.name, 0, offset + place, at * 1000, 60_000, {"key": "a"})
            for place, at in enumerate(times)
        ]
        offset += len(events)
        fed = backend.feed(events, 60_000)
        backend.restart()
        released.append([row["window_start"] // 1000 for row in fed.written.get(FOUND.name, [])])
        late += [row["offset"] for refused in fed.late.values() for row in refused]
    assert released == [[10], [12, 13], []]
    assert late == [4]
