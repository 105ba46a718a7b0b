"""The outputs of a job when a late row changes an earlier result."""

from dataclasses import dataclass

import polars as pl
import pytest

import millrace as mr
from millrace import testing, windows
from millrace.engine.operators import sliced_windows
from millrace.engine.operators.slices import Grid


@dataclass
class Ride:
    line: str
    riders: int


@dataclass
class Total:
    line: str
    riders: int


RIDES = mr.Topic("input.rides", Ride, key="line")
TOTALS = mr.Topic("analytics.totals", Total, key="line")


def few_riders(on: testing.On) -> testing.Script:
    """Lines with fewer than 10 riders a minute."""
    totals = mr.read(RIDES).window(windows.fixed("1m"), lateness="1h").group_by("line").sum("riders")
    return testing.Script(mr.Job("few", totals.filter(pl.col("riders") < 10).write(TOTALS)), on=on)


def test_a_value_that_no_longer_passes_the_filter_behind_it_is_withdrawn() -> None:
    for on in ("model", "engine"):
        script = few_riders(on)
        script.events({"line": "6", "riders": 4, "event_time": 5_000})
        script.watermark("1m")
        assert [(pane["op"], pane["riders"]) for pane in script.panes()] == [("+", 4)]
        script.events({"line": "6", "riders": 3, "event_time": 6_000})
        assert [(pane["op"], pane["riders"]) for pane in script.panes()] == [("+", 7)]
        script.events({"line": "6", "riders": 30, "event_time": 7_000})
        assert [(pane["op"], pane["riders"], pane["index"]) for pane in script.panes()] == [("-", 7, 2)]
        script.events({"line": "6", "riders": 1, "event_time": 8_000})
        assert script.panes() == [], "what did not pass before and does not now needs no word"


def test_windows_far_apart_are_made_in_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_windows, "MAX_EXPANDED_ROWS", 4)
    turns = 0
    expand = Grid.expand

    def counted(self: Grid, slices: pl.DataFrame, low: int | None, high: int | None) -> pl.LazyFrame:
        nonlocal turns
        turns += 1
        return expand(self, slices, low, high)

    monkeypatch.setattr(Grid, "expand", counted)
    sliding = mr.read(RIDES).window(windows.sliding("10ms", every="1ms")).group_by("line").sum("riders")
    times = [5, 1_700_000_000_000, 1_700_000_000_003]
    frame = pl.DataFrame({"line": ["6"] * 3, "riders": [1, 2, 3], "event_time": times})
    panes = mr.replay(mr.Job("far", sliding.write(TOTALS)), frame)
    assert panes["riders"].sum() == 10 * (1 + 2 + 3)
    assert turns < 60
