"""Which times and durations there are: the years 1 to 9999, and nothing is lost at their edges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import durations, testing, triggers, watermarks, windows
from millrace.durations import MAX_TIME, MIN_TIME
from millrace.errors import DefinitionError
from millrace.runners.replay import replay_all
from millrace.testing.model.source import SourceEvent
from millrace.windows import FOREVER, WindowFn


@dataclass
class Row:
    key: str


@dataclass
class Count:
    key: str
    count: int


ROWS, COUNTS = mr.Topic("input.rows", Row), mr.Topic("counts", Count)


def counting(window: WindowFn, **how: Any) -> mr.Job:
    rows = mr.read(ROWS, watermark=watermarks.bounded("1s")).window(window, **how)
    return mr.Job("counts", rows.group_by("key").count().write(COUNTS))


@pytest.mark.parametrize(
    "make",
    [
        lambda: windows.fixed("106751991167d"),
        lambda: windows.fixed("9" * 400 + "d"),
        lambda: windows.sessions(2**62),
        lambda: windows.fixed("1m", offset=2**62),
        lambda: windows.sliding(2**62, every=2**61),
        lambda: watermarks.bounded(2**62),
        lambda: watermarks.bounded("1s", ahead=2**63),
        lambda: watermarks.percentile(0.9, start=2**62),
        lambda: mr.read(ROWS).window(windows.fixed("1m"), lateness=2**62),
        lambda: triggers.every(2**62, time="event"),
        lambda: triggers.after_delay(2**62),
        lambda: mr.read(ROWS).group_by("key").deduplicate(within=2**62),
    ],
)
def test_a_duration_longer_than_all_times_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError, match="is longer than all times that events can have"):
        make()


def test_a_row_in_very_many_windows_is_refused_at_definition() -> None:
    with pytest.raises(DefinitionError, match="puts each row into 86,400,000 windows"):
        windows.sliding("1d", every="1ms")
    assert windows.sliding("1d", every="1s").size == 86_400_000


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_no_rows_is_refused(batch: int) -> None:
    with pytest.raises(DefinitionError, match="batch="):
        mr.replay(counting(windows.fixed("1m")), pl.DataFrame({"key": ["a"], "event_time": [1]}), batch=batch)


def test_a_batch_larger_than_any_number_of_rows_takes_all() -> None:
    frame = pl.DataFrame({"key": ["a", "a"], "event_time": [1, 2]})
    assert mr.replay(counting(windows.fixed("1m")), frame, batch=2**70)["count"].to_list() == [2]


WINDOWS: list[WindowFn] = [
    windows.fixed("1d"),
    windows.sliding("2d", every="1d"),
    windows.sessions("1h"),
    windows.global_window(),
    windows.fixed(durations.MAX_DURATION),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(
    "trigger", [triggers.at_watermark(), triggers.repeatedly(triggers.after_count(1))], ids=str
)
def test_every_event_is_counted_late_or_dead_also_at_the_edges_of_time(
    window: WindowFn, trigger: triggers.Trigger
) -> None:
    times = [
        MIN_TIME,
        MIN_TIME + 1,
        -1,
        0,
        9_223_372_036_855,
        MAX_TIME - 1,
        MAX_TIME,
        MIN_TIME - 1,
        MAX_TIME + 1,
        2**62,
        -(2**62),
        2**63 - 1,
        -(2**63),
    ]
    frame = pl.DataFrame({"key": [f"{n}" for n in range(len(times))], "event_time": times})
    replayed = replay_all(counting(window, trigger=trigger), frame)
    assert replayed.dead["offset"].to_list() == [7, 8, 9, 10, 11, 12]
    assert set(replayed.dead["reason"]) == {"event time is outside the years 1 to 9999"}
    assert set(replayed.outputs["counts"]["key"]) == {str(n) for n in range(7)}
    assert replayed.late.is_empty()


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_window_of_everything_holds_events_after_2262(on: testing.On) -> None:
    backend: Any = testing.backend([counting(windows.global_window())], {"input.rows": 1}, on)
    late = 10_000_000_000_000
    for offset, at in enumerate([late, late + 10_000, late + 20_000]):
        assert not backend.feed([SourceEvent("input.rows", 0, offset, at, at, {"key": "a"})], at).late.get(
            "counts"
        )
    fed = backend.feed([], late, end=True)
    assert [(row["count"], row["window_start"], row["window_end"]) for row in fed.written["counts"]] == [
        (3, *FOREVER)
    ]


@pytest.mark.parametrize("step", [1, 10, 1_000, 60_000, 3_600_000])
def test_rows_are_dealt_to_all_buckets_whatever_their_times_are_multiples_of(step: int) -> None:
    times = pl.Series("event_time", range(6_400)) * step + 1_700_000_000_000
    stream = mr.read(ROWS).spread(64).stream
    frame = pl.DataFrame(
        {"key": "a", "event_time": times, "ingestion_time": times}, schema_overrides={"event_time": pl.Int64}
    )
    sizes = stream.node.apply(frame).group_by("bucket").len()["len"]  # type: ignore[attr-defined]  # a stateless step
    assert len(sizes) == 64
    assert sizes.max() < 200
