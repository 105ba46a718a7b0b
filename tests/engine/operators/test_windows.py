"""Windows kept as cells: what a batch brings is judged by the time of that batch."""

from dataclasses import dataclass

import polars as pl
import pytest

import millrace as mr
from millrace import testing, triggers, windows
from millrace.engine.operators.windows import WindowsOperator
from millrace.stream import Job
from millrace.testing.model.source import SourceEvent
from millrace.topics import Topic
from millrace.windows import FOREVER, UNTIL_2262


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


def as_stored_before(engine: testing.OnEngine, job: str) -> None:
    """The cells as older versions stored them: panes of merged windows counted together, and everything up to the year 2262."""
    operator = next(
        operator for operator in engine.engine.plan.operators if operator.id == f"{job}/aggregation-1"
    )
    edges = dict(zip(FOREVER, UNTIL_2262, strict=True))
    older = pl.col("_start", "_end").replace(edges)
    layout = WindowsOperator(operator).layout
    for place, state in engine.engine.states.items():
        made = state.rewrite(
            operator.id, "cells", layout, lambda frame: frame.drop("_index0", "_settled0").with_columns(older)
        )
        engine.engine.states[place] = made
    engine.restart()


@pytest.mark.parametrize("window", [windows.global_window(), windows.sessions(10)], ids=str)
def test_cells_that_older_versions_stored_go_on(window: windows.WindowFn) -> None:
    every_two = triggers.repeatedly(triggers.after_count(2))
    job = Job(
        "counts",
        mr.read(READINGS)
        .window(window, trigger=every_two, lateness=100)
        .group_by("key")
        .count()
        .write(COUNTS),
    )
    engine = testing.OnEngine([job], {READINGS.name: 1}, slots=1)
    assert shown(engine, "aab", 0, 0) == [("a", 2)]
    as_stored_before(engine, "counts")
    assert shown(engine, "bb", 0, 3) == [("b", 3)]
    assert shown(engine, "aa", 0, 5) == [("a", 4)]
