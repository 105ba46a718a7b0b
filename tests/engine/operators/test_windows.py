"""Windows kept as cells: what a batch brings is judged by the time of that batch."""

from dataclasses import dataclass

import pytest

import millrace as mr
from millrace import testing, triggers, windows
from millrace.stream import Job
from millrace.testing.model.source import SourceEvent
from millrace.topics import Topic


@dataclass
class Reading:
    key: str


@dataclass
class Count:
    key: str
    count: int


READINGS, COUNTS = Topic("input.readings", Reading), Topic("analytics.counts", Count)


def shown(backend: testing.Backend, keys: str, now: int, offset: int) -> list[tuple[str, int]]:
    """What a batch of one reading for each of some keys, at a time of the clock, brings about."""
    batch = [
        SourceEvent(READINGS.name, 0, offset + place, now, now, {"key": key})
        for place, key in enumerate(keys)
    ]
    return sorted((row["key"], row["count"]) for row in backend.feed(batch, now).written.get(COUNTS.name, []))


@pytest.mark.parametrize("on", ["model", "engine"])
def test_by_the_clock_a_trigger_counts_from_the_time_at_which_the_rows_came(on: testing.On) -> None:
    every_ten = triggers.repeatedly(triggers.every(10, time="event"))
    job = Job(
        "counts",
        mr.read(READINGS)
        .window(windows.processing_time(windows.fixed(100)), trigger=every_ten)
        .group_by("key")
        .count()
        .write(COUNTS),
    )
    backend = testing.backend([job], {READINGS.name: 1}, on)
    assert shown(backend, "a", 3, 0) == []
    assert shown(backend, "b", 17, 1) == [("a", 1)]
    assert shown(backend, "", 20, 2) == [("b", 1)]
